//! What cannot be right although each value alone is, and what is right and still deserves a word.

use super::Config;
use super::environment::Environment;
use super::error::ConfigError;
use super::setting::{ADMIN_SOCKET, KUBELET_SOCKET, LISTEN_SOCKET, STATE_DIR};

pub(super) fn conflicts(config: &Config, errors: &mut Vec<ConfigError>) {
    let listen = config.listen.socket.as_path();
    if listen == config.upstream.socket.as_path() {
        errors.push(ConfigError::Conflict(format!(
            "`{}` and `{}` are both {}: the proxy would ask itself; give it a socket in a directory of its own",
            LISTEN_SOCKET.key,
            KUBELET_SOCKET.key,
            listen.display(),
        )));
    }
    if let (Some(state), Some(shared)) = (&config.upstream.state_dir, listen.parent())
        && state.starts_with(shared)
    {
        errors.push(ConfigError::Conflict(format!(
            "`{}` ({}) is within the directory of `{}`, which clients mount: whoever can write there could give every client a false answer; \
             give it a directory of its own",
            STATE_DIR.key,
            state.display(),
            LISTEN_SOCKET.key,
        )));
    }
    if let Some(admin) = config.admin.socket.as_ref().filter(|admin| admin.as_path().parent() == listen.parent()) {
        errors.push(ConfigError::Conflict(format!(
            "`{}` ({admin}) is in the directory of `{}`, which clients mount; give it a directory of its own",
            ADMIN_SOCKET.key, LISTEN_SOCKET.key,
        )));
    }
}

pub(super) fn warnings(config: &Config, environment: &Environment) -> Vec<String> {
    let mut warnings = Vec::new();
    if config.listen.mode & 0o002 != 0 {
        warnings.push(format!(
            "mode {:04o} lets every process that reaches {} call it; some clients refuse such a socket",
            config.listen.mode, config.listen.socket
        ));
    }
    if config.listen.mode & 0o222 == 0 {
        warnings.push(format!("mode {:04o} lets nobody but root call {}", config.listen.mode, config.listen.socket));
    }
    for (name, nearest) in environment.unknown() {
        let hint = nearest.map(|nearest| format!("; did you mean {nearest}?")).unwrap_or_default();
        warnings.push(format!("the environment variable {name} means nothing to podresources-proxy{hint}"));
    }
    warnings
}
