//! The rules of the house that no linter knows. Pure: a path and a text in, complaints out.

use std::path::Path;

/// Longest file that needs no reason.
const LONGEST: usize = 500;
/// How a longer one gives its reason, within its first lines.
const REASON: &str = "Long because";
const FIRST_LINES: usize = 20;

/// Names that say nothing about what is inside.
const FORBIDDEN_NAMES: [&str; 10] =
    ["utils", "util", "helpers", "helper", "common", "manager", "misc", "stuff", "lib_tests", "tools"];

/// What the programs in the kernel and the proxy have in common, and the one place that may be called so.
const SHARED_WITH_THE_KERNEL: &str = "ebpf/common";

/// Where `unsafe` may stand.
const UNSAFE_HOMES: [&str; 2] = ["proxy/sys", "ebpf"];
// Written in two parts, so that this file keeps its own rules.
const UNSAFE: [&str; 5] = [
    concat!("un", "safe {"),
    concat!("un", "safe fn"),
    concat!("un", "safe impl"),
    concat!("un", "safe extern"),
    concat!("un", "safe trait"),
];

/// Hosts that only a registry's client should know, and folders of one machine.
const NOT_OURS_TO_NAME: [&str; 9] = [
    concat!("proxy.golang", ".org"),
    concat!("sum.golang", ".org"),
    concat!("registry.npmjs", ".org"),
    concat!("pypi", ".org"),
    concat!("pythonhosted", ".org"),
    concat!("static.crates", ".io"),
    concat!("index.crates", ".io"),
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
];

/// What is wrong with this file, each a line to print.
pub(crate) fn check(path: &Path, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    complaints.extend(name(path));
    if is_source(path) {
        complaints.extend(length(text));
    }
    if path.extension().is_some_and(|extension| extension == "rs") && !UNSAFE_HOMES.iter().any(|home| path.starts_with(home)) {
        complaints.extend(outside_sys(text));
    }
    complaints.extend(places(text));
    complaints
}

fn is_source(path: &Path) -> bool {
    matches!(path.extension().and_then(|extension| extension.to_str()), Some("rs" | "go" | "py" | "js" | "sh" | "c" | "proto"))
}

fn name(path: &Path) -> Option<String> {
    let path = path.strip_prefix(SHARED_WITH_THE_KERNEL).unwrap_or(path);
    let words = path.iter().filter_map(|part| Path::new(part).file_stem()?.to_str());
    let bad = words.into_iter().find(|word| FORBIDDEN_NAMES.contains(&word.to_lowercase().as_str()))?;
    Some(format!("`{bad}` says nothing: name it by its role"))
}

fn length(text: &str) -> Option<String> {
    let lines = text.lines().count();
    let reasoned = text.lines().take(FIRST_LINES).any(|line| line.contains(REASON));
    (lines > LONGEST && !reasoned).then(|| format!("{lines} lines: split it, or give the reason at its top (`{REASON} …`)"))
}

fn outside_sys(text: &str) -> impl Iterator<Item = String> {
    text.lines().enumerate().filter_map(|(at, line)| {
        let code = line.split("//").next().unwrap_or_default();
        let found = UNSAFE.iter().find(|word| code.contains(**word))?;
        Some(format!("line {}: `{found}` outside {}", at + 1, UNSAFE_HOMES.join(" and ")))
    })
}

fn places(text: &str) -> impl Iterator<Item = String> {
    text.lines().enumerate().filter_map(|(at, line)| {
        let found = NOT_OURS_TO_NAME.iter().find(|place| line.contains(**place))?;
        Some(format!("line {}: `{found}` names a registry's host or a folder of one machine", at + 1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> usize {
        check(Path::new(path), text).len()
    }

    #[test]
    fn a_file_of_an_empty_name_is_refused_wherever_the_name_stands() {
        assert_eq!(complaints("proxy/utils.rs", ""), 1);
        assert_eq!(complaints("proxy/common/mod.rs", ""), 1);
        assert_eq!(complaints("proxy/epoch.rs", ""), 0);
        assert_eq!(complaints("ebpf/common/src/lib.rs", ""), 0);
    }

    #[test]
    fn a_long_file_needs_its_reason_at_the_top() {
        let long = "x\n".repeat(LONGEST + 1);
        assert_eq!(complaints("proxy/epoch.rs", &"x\n".repeat(LONGEST)), 0);
        assert_eq!(complaints("proxy/epoch.rs", &long), 1);
        assert_eq!(complaints("proxy/epoch.rs", &format!("//! {REASON} the table is one\n{long}")), 0);
        assert_eq!(complaints("proxy/epoch.rs", &format!("{long}//! {REASON} the table is one\n")), 1);
        assert_eq!(complaints("Cargo.lock", &long), 0);
    }

    #[test]
    fn what_the_compiler_cannot_check_stays_in_its_homes() {
        let code = format!("let x = {} call() }};", UNSAFE[0]);
        assert_eq!(complaints("proxy/serve/listen.rs", &code), 1);
        assert_eq!(complaints("proxy/sys/word.rs", &code), 0);
        assert_eq!(complaints("ebpf/src/main.rs", &code), 0);
        assert_eq!(complaints("proxy/serve/listen.rs", &format!("// {code}")), 0);
    }

    #[test]
    fn registry_hosts_and_machine_folders_are_found_in_any_file() {
        for place in NOT_OURS_TO_NAME {
            assert_eq!(complaints("tests/clients/node/package-lock.json", &format!("see https://{place}x")), 1, "{place}");
        }
        assert_eq!(complaints("docs/guide.md", "/var/lib/kubelet and k8s.io/kubernetes"), 0);
    }
}
