//! What was typed after `run` and `config`: one flag for each [`Setting`], all optional, all text until [`super::resolve()`] reads them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command, FromArgMatches};

use super::setting::{ALL, ENV_PREFIX, Kind, Setting};

/// The flags as typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Args {
    /// `--config`, or its environment variable.
    pub config: Option<PathBuf>,
    /// Values by flag.
    values: BTreeMap<&'static str, String>,
}

// === impl Args ===

impl Args {
    /// What was typed for a setting.
    pub fn get(&self, setting: &Setting) -> Option<&str> {
        self.values.get(setting.flag).map(String::as_str)
    }

    /// The same flags with one more.
    #[must_use]
    pub fn with(mut self, setting: &Setting, value: impl Into<String>) -> Self {
        self.values.insert(setting.flag, value.into());
        self
    }
}

impl clap::Args for Args {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .value_parser(clap::value_parser!(PathBuf))
            .help("The configuration file")
            .long_help(format!(
                "The configuration file, TOML\nDefault: {} where that exists. Environment: {ENV_PREFIX}CONFIG",
                super::DEFAULT_FILE
            ));
        ALL.iter().fold(command.arg(config), |command, setting| command.arg(flag(setting)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Args {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let typed = |setting: &Setting| matches.get_one::<String>(setting.flag).map(|value| (setting.flag, value.clone()));
        Ok(Self { config: matches.get_one::<PathBuf>("config").cloned(), values: ALL.iter().filter_map(typed).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let Self { config, values } = Self::from_arg_matches(matches)?;
        self.config = config.or_else(|| self.config.take());
        self.values.extend(values);
        Ok(())
    }
}

fn flag(setting: &Setting) -> Arg {
    let arg = Arg::new(setting.flag).long(setting.flag).value_name(setting.value).help(setting.help).long_help(setting.long_help());
    match setting.kind {
        Kind::Switch => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
        Kind::Text | Kind::Number => arg,
    }
}
