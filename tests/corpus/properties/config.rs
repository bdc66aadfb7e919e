//! The configuration file: whatever is wrong is named by its line, and what is right means the same once it has been shown.

use std::path::{Path, PathBuf};

use podresources_proxy::config::args::Args;
use podresources_proxy::config::environment::Environment;
use podresources_proxy::config::file::File;
use podresources_proxy::config::{ConfigErrors, Place, Resolved, resolve};

pub(crate) fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let resolved = match read(&text) {
        Ok(resolved) => resolved,
        Err(errors) => {
            let lines = text.lines().count() + 1;
            assert!(!errors.0.is_empty());
            for error in &errors.0 {
                assert!(error.line() <= lines && !error.to_string().is_empty(), "{error}");
            }
            return;
        }
    };
    let shown = resolved.to_toml();
    let again = read(&shown).unwrap_or_else(|errors| panic!("{errors} in what was shown:\n{shown}"));
    assert_eq!(again.config, resolved.config, "shown as:\n{shown}");
}

fn read(text: &str) -> Result<Resolved, ConfigErrors> {
    let place = Place { runtime_dir: PathBuf::from("/run"), state_dir: None, is_served: |_| false };
    let file = File::parse(Path::new("config.toml"), text)?;
    resolve(&Args::default(), &Environment::default(), Some(&file), &place)
}
