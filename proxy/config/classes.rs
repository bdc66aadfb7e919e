//! `[[class]]` tables, read and written: from TOML to [`Class`]es with everything that is wrong named by its line, and back.

use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::class::{Class, METHODS, OnStale};
use super::error::{ConfigError, Origin, nearest};
use super::value::{self, Read};

/// More than anybody can keep apart; each client is compared with all of them when it comes.
const MOST: usize = 256;
/// The longest name: it goes into metadata and logs.
const LONGEST_NAME: usize = 63;

/// The keys of a class.
const KEYS: [&str; 18] = [
    "class.name",
    "class.namespace",
    "class.pod",
    "class.unit",
    "class.uid",
    "class.method",
    "class.deny",
    "class.rate",
    "class.burst",
    "class.weight",
    "class.connections",
    "class.calls",
    "class.waiting",
    "class.total_rate",
    "class.total_burst",
    "class.total_connections",
    "class.max_age",
    "class.on_stale",
];

/// Reads one class.
struct Reader<'a> {
    path: &'a Path,
    line: &'a dyn Fn(Range<usize>) -> usize,
    errors: Vec<ConfigError>,
}

/// A value of a class, as text, where it is one.
struct Found<'a> {
    key: &'static str,
    line: usize,
    value: &'a DeValue<'a>,
}

/// Reads the value of `class`: a list of tables.
pub(super) fn parse(
    path: &Path,
    key: &Spanned<std::borrow::Cow<'_, str>>,
    value: &DeValue<'_>,
    line: &dyn Fn(Range<usize>) -> usize,
) -> Result<Vec<Class>, Vec<ConfigError>> {
    let mut reader = Reader { path, line, errors: Vec::new() };
    let mut classes: Vec<(Class, usize)> = Vec::new();
    let not_a_list = |found| ConfigError::Shape {
        path: path.to_owned(),
        line: line(key.span()),
        key: "class".into(),
        found,
        wanted: "tables that begin with [[class]]",
    };
    let DeValue::Array(tables) = value else {
        return Err(vec![not_a_list(if matches!(value, DeValue::Table(_)) { "one section" } else { "a single value" })]);
    };
    for table in tables {
        match table.get_ref() {
            DeValue::Table(fields) => {
                let at = first_line(table, fields, line);
                classes.push((reader.class(at, fields), at));
            }
            _ => reader.errors.push(not_a_list("a list of values")),
        }
    }
    reader.together(&classes);
    if reader.errors.is_empty() { Ok(classes.into_iter().map(|(class, _)| class).collect()) } else { Err(reader.errors) }
}

/// The line of a table's first key: that of its head is in the text alone.
fn first_line(table: &Spanned<DeValue<'_>>, fields: &DeTable<'_>, line: &dyn Fn(Range<usize>) -> usize) -> usize {
    fields.keys().map(|key| line(key.span())).min().unwrap_or_else(|| line(table.span()))
}

// === impl Reader ===

impl Reader<'_> {
    fn class(&mut self, at: usize, fields: &DeTable<'_>) -> Class {
        let mut class = Class::default();
        for (name, value) in fields {
            let line = (self.line)(name.span());
            let key = format!("class.{}", name.get_ref().replace('-', "_"));
            if let Some(key) = KEYS.iter().find(|known| **known == format!("class.{}", name.get_ref())) {
                self.field(&mut class, &Found { key, line, value: value.get_ref() });
            } else {
                let nearest = meant(&key).map(str::to_owned).or_else(|| nearest(&key, KEYS.into_iter()));
                let key = format!("class.{}", name.get_ref());
                self.errors.push(ConfigError::UnknownKey { path: self.path.to_owned(), line, key, nearest });
            }
        }
        self.alone(&class, at);
        class
    }

    fn field(&mut self, class: &mut Class, found: &Found<'_>) {
        match found.key {
            "class.name" => self.one(found, name).into_iter().for_each(|name| class.name = name),
            "class.namespace" => class.namespaces = self.list(found, word),
            "class.pod" => class.pods = self.list(found, word),
            "class.unit" => class.units = self.list(found, unit),
            "class.uid" => class.uids = self.list(found, value::user),
            "class.method" => self.list(found, method).into_iter().for_each(|method| class.methods[method] = true),
            "class.deny" => class.deny = self.one(found, value::switch).unwrap_or_default(),
            "class.rate" => class.each.rate = self.one(found, value::rate),
            "class.burst" => class.each.burst = self.one(found, value::burst),
            "class.weight" => class.each.weight = self.one(found, value::burst),
            "class.connections" => class.each.connections = self.one(found, value::burst),
            "class.calls" => class.each.calls = self.one(found, value::burst),
            "class.waiting" => class.each.waiting_bytes = self.one(found, value::size),
            "class.total_rate" => class.whole.rate = self.one(found, value::rate),
            "class.total_burst" => class.whole.burst = self.one(found, value::burst),
            "class.total_connections" => class.whole.connections = self.one(found, value::burst),
            "class.max_age" => class.max_age = self.one(found, value::time_above_zero),
            _ => class.on_stale = self.one(found, on_stale),
        }
    }

    /// A single value.
    fn one<T>(&mut self, found: &Found<'_>, read: impl Fn(&str) -> Read<T>) -> Option<T> {
        let Some(text) = text(found.value) else {
            self.shape(found, "a single value");
            return None;
        };
        self.read(found, &text, read)
    }

    /// A single value, or a list of such.
    fn list<T>(&mut self, found: &Found<'_>, read: impl Fn(&str) -> Read<T>) -> Vec<T> {
        let DeValue::Array(values) = found.value else { return self.one(found, read).into_iter().collect() };
        if values.is_empty() {
            self.value(found.line, found.key, "[]", "an empty list takes nobody; leave the key out to take all");
        }
        let mut all = Vec::new();
        for value in values {
            match text(value.get_ref()) {
                Some(text) => all.extend(self.read(found, &text, &read)),
                None => self.shape(found, "a value, or a list of values"),
            }
        }
        all
    }

    fn read<T>(&mut self, found: &Found<'_>, text: &str, read: impl Fn(&str) -> Read<T>) -> Option<T> {
        read(text).map_err(|reason| self.value(found.line, found.key, text, &reason)).ok()
    }

    /// What cannot be right within one class.
    fn alone(&mut self, class: &Class, at: usize) {
        let about_pods = !class.namespaces.is_empty() || !class.pods.is_empty();
        let kinds = [about_pods, !class.units.is_empty(), !class.uids.is_empty()];
        if class.name.is_empty() && !self.errors.iter().any(|error| matches!(error, ConfigError::Value { key: "class.name", .. })) {
            self.value(at, "class.name", "", "each class needs a name");
        }
        if kinds.into_iter().filter(|kind| *kind).count() > 1 {
            let reason = "a client is a pod, a unit or a user, never two of them; make a class of each";
            self.value(at, "class", &class.name, reason);
        }
        if class.deny
            && (class.each != <_>::default()
                || class.whole != <_>::default()
                || class.max_age.is_some()
                || class.on_stale.is_some())
        {
            self.value(at, "class.deny", "true", "who gets nothing has no limits and no freshness");
        }
        if class.whole.burst.is_some() && class.whole.rate.is_none() {
            self.value(at, "class.total_burst", &class.name, "a burst needs a rate; give total_rate too");
        }
        if class.has_methods()
            && (class.each.connections.is_some() || class.each.weight.is_some() || class.whole.connections.is_some())
        {
            let reason = "connections and weight are a client's, not a method's; give them in a class without method";
            self.value(at, "class.method", &class.name, reason);
        }
    }

    /// What cannot be right of all classes together.
    fn together(&mut self, classes: &[(Class, usize)]) {
        if classes.len() > MOST {
            self.value(classes[MOST].1, "class", &classes[MOST].0.name, &format!("{MOST} classes are the most"));
        }
        // A class whose matches are wrong would seem to take everybody.
        let right = self.errors.is_empty();
        for (at, (class, line)) in classes.iter().enumerate() {
            let before = &classes[..at];
            if !class.name.is_empty() && before.iter().any(|(other, _)| other.name == class.name) {
                self.value(*line, "class.name", &class.name, "another class has this name");
            }
            if right && let Some((other, _)) = before.iter().find(|(other, _)| other.takes_everybody() && !other.has_methods()) {
                let reason =
                    format!("the first class that takes a client is its own, and \"{}\" above takes everybody", other.name);
                self.value(*line, "class", &class.name, &reason);
            }
        }
    }

    fn value(&mut self, line: usize, key: &'static str, value: &str, reason: &str) {
        let origin = Origin::File { path: self.path.to_owned(), line };
        self.errors.push(ConfigError::Value { origin, key, value: value.to_owned(), reason: reason.to_owned() });
    }

    fn shape(&mut self, found: &Found<'_>, wanted: &'static str) {
        let is = match found.value {
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a section",
            _ => "a date",
        };
        let (path, line) = (self.path.to_owned(), found.line);
        self.errors.push(ConfigError::Shape { path, line, key: found.key.to_owned(), found: is, wanted });
    }
}

/// What other configurations call it.
fn meant(key: &str) -> Option<&'static str> {
    match key {
        "class.namespaces" => Some("class.namespace"),
        "class.pods" | "class.prefix" | "class.pod_prefix" => Some("class.pod"),
        "class.user" | "class.users" => Some("class.uid"),
        "class.allow" => Some("class.deny"),
        _ => None,
    }
}

fn text(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Float(number) => Some(number.to_string()),
        DeValue::Boolean(yes) => Some(yes.to_string()),
        DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => None,
    }
}

fn name(text: &str) -> Read<String> {
    let fits = !text.is_empty() && text.len() <= LONGEST_NAME && text.bytes().all(|byte| byte.is_ascii_graphic());
    if fits { Ok(text.to_owned()) } else { Err(format!("give a name of 1 to {LONGEST_NAME} printable characters without spaces")) }
}

/// A namespace, or how a pod's name begins: RFC 1123 has lower case letters, digits, `-` and `.`.
fn word(text: &str) -> Read<String> {
    let fits = !text.is_empty() && text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.'));
    let text = text.to_owned();
    if fits {
        Ok(text)
    } else {
        Err("give lower case letters, digits, - and . (a pod's name is compared by how it begins, without *)".into())
    }
}

fn unit(text: &str) -> Read<String> {
    let known = [".service", ".scope", ".socket", ".mount", ".swap", ".slice"];
    let is_unit = known.iter().any(|kind| text.strip_suffix(kind).is_some_and(|name| !name.is_empty() && !name.contains('/')));
    if is_unit { Ok(text.to_owned()) } else { Err("give a unit with its kind, such as crio.service or user-1000.slice".into()) }
}

fn method(text: &str) -> Read<usize> {
    let found = METHODS.iter().position(|method| *method == text);
    found.ok_or_else(|| format!("give {}", METHODS.join(", ")))
}

fn on_stale(text: &str) -> Read<OnStale> {
    match text {
        "serve" => Ok(OnStale::Serve),
        "fail" => Ok(OnStale::Fail),
        _ => Err("give serve or fail".into()),
    }
}

/// The classes as TOML that would give them again.
pub(super) fn to_toml(classes: &[Class]) -> String {
    let mut out = String::new();
    for class in classes {
        // Writing into a string cannot fail.
        let mut line = |key: &str, value: Option<String>| {
            if let Some(value) = value {
                let _written = writeln!(out, "{key} = {value}");
            }
        };
        let Class { name, namespaces, pods, units, uids, methods, deny, each, whole, max_age, on_stale } = class;
        line("\n[[class]]\nname", Some(quoted(name)));
        line("namespace", texts(namespaces));
        line("pod", texts(pods));
        line("unit", texts(units));
        line("uid", (!uids.is_empty()).then(|| format!("{uids:?}")));
        let methods: Vec<String> =
            METHODS.iter().zip(methods).filter(|(_, named)| **named).map(|(name, _)| (*name).to_owned()).collect();
        line("method", texts(&methods));
        line("deny", deny.then(|| "true".to_owned()));
        line("rate", each.rate.map(|rate| quoted(&format!("{rate}/s"))));
        line("burst", each.burst.map(|number| number.to_string()));
        line("weight", each.weight.map(|number| number.to_string()));
        line("connections", each.connections.map(|number| number.to_string()));
        line("calls", each.calls.map(|number| number.to_string()));
        line("waiting", each.waiting_bytes.map(|bytes| quoted(&format!("{bytes}B"))));
        line("total_rate", whole.rate.map(|rate| quoted(&format!("{rate}/s"))));
        line("total_burst", whole.burst.map(|number| number.to_string()));
        line("total_connections", whole.connections.map(|number| number.to_string()));
        line("max_age", max_age.map(|age| quoted(&humantime::format_duration(age).to_string())));
        let on_stale = on_stale.map(|on_stale| match on_stale {
            OnStale::Serve => "serve",
            OnStale::Fail => "fail",
        });
        line("on_stale", on_stale.map(quoted));
    }
    out
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn texts(texts: &[String]) -> Option<String> {
    (!texts.is_empty()).then(|| toml::Value::Array(texts.iter().cloned().map(toml::Value::String).collect()).to_string())
}

#[cfg(test)]
#[path = "classes_tests.rs"]
mod tests;
