//! The environment variables that are ours, as a value, so that nothing else needs to look at the process.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::error::nearest;
use super::setting::{ALL, ENV_PREFIX, Setting};

/// What Kubernetes itself puts into a pod's environment for a Service called `podresources-proxy`: not meant for us.
const OF_A_SERVICE: [&str; 2] = ["PORT", "SERVICE_"];

/// Variables of ours that are no settings: they say where to look, and belong to the client verbs.
const NOT_SETTINGS: [&str; 4] = ["CONFIG", "SOCKET", "SYSFS", "TIMEOUT"];

/// Our variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment(BTreeMap<String, String>);

// === impl Environment ===

impl Environment {
    /// Those of the process.
    pub fn of_process() -> Self {
        std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned())))
            .collect()
    }

    /// The value for a setting. A variable that is set to nothing counts as not set: templates often leave one behind.
    pub fn get(&self, setting: &Setting) -> Option<&str> {
        self.value(&setting.env())
    }

    /// The configuration file.
    pub fn config(&self) -> Option<PathBuf> {
        self.value(&format!("{ENV_PREFIX}CONFIG")).map(PathBuf::from)
    }

    /// Variables that begin like ours and mean nothing, each with the nearest that does.
    pub fn unknown(&self) -> impl Iterator<Item = (&str, Option<String>)> {
        let ours: Vec<String> =
            ALL.iter().map(Setting::env).chain(NOT_SETTINGS.map(|name| format!("{ENV_PREFIX}{name}"))).collect();
        let strangers = self.0.keys().filter(|name| !ours.contains(name) && !of_a_service(name));
        let found: Vec<_> = strangers.map(|name| (name.as_str(), nearest(name, ours.iter().map(String::as_str)))).collect();
        found.into_iter()
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }
}

impl FromIterator<(String, String)> for Environment {
    fn from_iter<T: IntoIterator<Item = (String, String)>>(vars: T) -> Self {
        Self(vars.into_iter().filter(|(name, _)| name.starts_with(ENV_PREFIX)).collect())
    }
}

/// Whether Kubernetes would give a variable this name by itself.
pub(super) fn of_a_service(name: &str) -> bool {
    name.strip_prefix(ENV_PREFIX).is_some_and(|rest| OF_A_SERVICE.iter().any(|begin| rest.starts_with(begin)))
}
