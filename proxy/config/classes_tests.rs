use std::path::PathBuf;
use std::time::Duration;

use insta::assert_snapshot;

use super::super::file::File;
use super::*;

fn file(text: &str) -> Result<File, String> {
    File::parse(&PathBuf::from("/c.toml"), text).map_err(|errors| errors.to_string())
}

fn error(text: &str) -> String {
    file(text).unwrap_err()
}

const ALL: &str = r#"
[[class]]
name = "cni"
namespace = ["kube-system", "network"]
pod = "multus-"
rate = "500/s"
burst = 1000
weight = 10
connections = 300
calls = 512
waiting = "32MiB"
total_rate = 2000
total_burst = 10
total_connections = 1000

[[class]]
name = "gets"
method = ["Get", "v1alpha1.List"]
rate = "1.5/s"

[[class]]
name = "runtime"
unit = "crio.service"
max_age = "1m 30s"
on_stale = "serve"

[[class]]
name = "people"
uid = [0, 1000]
on_stale = "fail"

[[class]]
name = "others"
deny = true
"#;

#[test]
fn every_key_of_a_class_is_read() {
    let file = file(ALL).unwrap();
    let [cni, gets, runtime, people, others] = file.classes() else { panic!("{:?}", file.classes()) };
    assert_eq!(
        (cni.namespaces.as_slice(), cni.pods.as_slice()),
        (&["kube-system".into(), "network".into()][..], &["multus-".into()][..])
    );
    assert_eq!(cni.each.rate, Some(500.0));
    let numbers = [cni.each.burst, cni.each.weight, cni.each.connections, cni.each.calls, cni.whole.burst, cni.whole.connections];
    assert_eq!(numbers.map(|number| number.unwrap().get()), [1000, 10, 300, 512, 10, 1000]);
    assert_eq!((cni.each.waiting_bytes, cni.whole.rate), (Some(32 << 20), Some(2000.0)));
    assert_eq!((gets.methods, gets.each.rate), ([false, false, true, true], Some(1.5)));
    assert_eq!((runtime.max_age, runtime.on_stale), (Some(Duration::from_secs(90)), Some(OnStale::Serve)));
    assert_eq!((people.uids.as_slice(), people.on_stale), (&[0, 1000][..], Some(OnStale::Fail)));
    assert!(others.deny && others.takes_everybody() && !cni.takes_everybody());
}

#[test]
fn what_is_shown_can_be_read_again_and_is_the_same() {
    let read = file(ALL).unwrap();
    let shown = to_toml(read.classes());
    assert_eq!(file(&shown).unwrap().classes(), read.classes(), "{shown}");
}

#[cfg(feature = "server")]
#[test]
fn the_methods_are_those_that_are_served_in_their_order() {
    let served = crate::serve::Method::ALL.map(|method| match method.api_version() {
        "v1" => method.name().to_owned(),
        version => format!("{version}.{}", method.name()),
    });
    assert_eq!(served, METHODS);
}

#[test]
fn what_is_wrong_is_named_with_its_line_and_what_would_be_right_all_of_it_at_once() {
    let text = r#"
[[class]]
name = "a"
rates = "5/s"
namespaces = "x"
burst = 0
pod = "Multus*"
unit = "crio"
method = "list"

[[class]]
uid = "nobody-of-this-name"
max_age = 5
on_stale = "maybe"
rate = ["1/s"]
total_burst = 3
"#;
    assert_snapshot!(error(text), @r#"
    /c.toml:4: unknown key `class.rates`; did you mean `class.rate`?
    /c.toml:5: unknown key `class.namespaces`; did you mean `class.namespace`?
    /c.toml:6: "0" does not fit `class.burst`: give a whole number from 1
    /c.toml:7: "Multus*" does not fit `class.pod`: give lower case letters, digits, - and . (a pod's name is compared by how it begins, without *)
    /c.toml:8: "crio" does not fit `class.unit`: give a unit with its kind, such as crio.service or user-1000.slice
    /c.toml:9: "list" does not fit `class.method`: give List, GetAllocatableResources, Get, v1alpha1.List
    /c.toml:12: "nobody-of-this-name" does not fit `class.uid`: there is no such user here; give a number if it is known elsewhere only
    /c.toml:12: "" does not fit `class.name`: each class needs a name
    /c.toml:12: "" does not fit `class.total_burst`: a burst needs a rate; give total_rate too
    /c.toml:13: "5" does not fit `class.max_age`: give a time with a unit, such as 500ms, 10s or 5m
    /c.toml:14: "maybe" does not fit `class.on_stale`: give serve or fail
    /c.toml:15: `class.rate` is a list; it takes a single value
    "#);
}

#[test]
fn what_cannot_be_right_together_is_said() {
    let text = r#"
[[class]]
name = "a"
namespace = "x"
unit = "a.service"

[[class]]
name = "a"
deny = true
rate = "1/s"

[[class]]
name = "late"
namespace = []

[[class]]
name = "m"
uid = 1
method = "Get"
weight = 2
"#;
    assert_snapshot!(error(text), @r#"
    /c.toml:3: "a" does not fit `class`: a client is a pod, a unit or a user, never two of them; make a class of each
    /c.toml:8: "true" does not fit `class.deny`: who gets nothing has no limits and no freshness
    /c.toml:8: "a" does not fit `class.name`: another class has this name
    /c.toml:14: "[]" does not fit `class.namespace`: an empty list takes nobody; leave the key out to take all
    /c.toml:17: "m" does not fit `class.method`: connections and weight are a client's, not a method's; give them in a class without method
    "#);
}

#[test]
fn a_class_after_one_of_everybody_is_named_since_it_would_never_take_anybody() {
    let text = "[[class]]\nname = \"others\"\ndeny = true\n[[class]]\nname = \"late\"\nnamespace = \"x\"\n";
    assert_snapshot!(error(text), @r#"/c.toml:5: "late" does not fit `class`: the first class that takes a client is its own, and "others" above takes everybody"#);
}

#[test]
fn a_class_that_is_no_table_of_its_own_is_named() {
    assert_snapshot!([error("[class]\nname = \"a\""), error("class = 5"), error("class = [5]"), error("[[clas]]\nname = \"a\"")].join("\n"), @r#"
    /c.toml:1: `class` is one section; it takes tables that begin with [[class]]
    /c.toml:1: `class` is a single value; it takes tables that begin with [[class]]
    /c.toml:1: `class` is a list of values; it takes tables that begin with [[class]]
    /c.toml:1: unknown key `clas`; did you mean `class`?
    "#);
}
