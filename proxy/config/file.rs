//! The TOML file, as values by key with their lines. Pure: the text comes in as an argument.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::class::Class;
use super::classes;
use super::error::{ConfigError, ConfigErrors, nearest};
use super::setting::{ALL, Kind, Setting};

/// The one key beside the settings: tables of classes.
const CLASS: &str = "class";

/// What a file sets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct File {
    /// Where it was read from.
    pub path: PathBuf,
    /// Value and line by key.
    values: BTreeMap<&'static str, (String, usize)>,
    classes: Vec<Class>,
}

struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
    values: BTreeMap<&'static str, (String, usize)>,
    classes: Vec<Class>,
    errors: Vec<ConfigError>,
}

// === impl File ===

impl File {
    /// Reads a file's text; `path` is for messages. Names everything that is wrong with it, not only the first.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigErrors> {
        let mut reader = Reader { path, text, values: BTreeMap::new(), classes: Vec::new(), errors: Vec::new() };
        let (table, syntax) = DeTable::parse_recoverable(text);
        for error in &syntax {
            let line = reader.line(error.span().unwrap_or_default());
            reader.errors.push(ConfigError::Syntax { path: path.to_owned(), line, message: error.message().to_owned() });
        }
        if syntax.is_empty() {
            reader.table("", table.get_ref());
        }
        let Reader { values, classes, mut errors, .. } = reader;
        errors.sort_by_key(ConfigError::line);
        if errors.is_empty() { Ok(Self { path: path.to_owned(), values, classes }) } else { Err(ConfigErrors(errors)) }
    }

    /// The value for a setting, and its line.
    pub fn get(&self, setting: &Setting) -> Option<(&str, usize)> {
        self.values.get(setting.key).map(|(value, line)| (value.as_str(), *line))
    }

    /// The classes of clients, in their order.
    pub fn classes(&self) -> &[Class] {
        &self.classes
    }
}

// === impl Reader ===

impl Reader<'_> {
    fn table(&mut self, section: &str, table: &DeTable<'_>) {
        for (name, value) in table {
            let line = self.line(name.span());
            let key = if section.is_empty() { name.get_ref().to_string() } else { format!("{section}.{}", name.get_ref()) };
            if let Some(setting) = ALL.iter().find(|setting| setting.key == key) {
                self.value(setting, value.get_ref(), line);
            } else if key == CLASS {
                match classes::parse(self.path, name, value.get_ref(), &|span| self.line(span)) {
                    Ok(classes) => self.classes = classes,
                    Err(errors) => self.errors.extend(errors),
                }
            } else if section.is_empty() && !key.is_empty() && ALL.iter().any(|setting| split(setting).0 == key) {
                match value.get_ref() {
                    DeValue::Table(table) => self.table(&key, table),
                    other => self.shape(key, other, "a section", line),
                }
            } else {
                let nearest = suggest(&key);
                self.errors.push(ConfigError::UnknownKey { path: self.path.to_owned(), line, key, nearest });
            }
        }
    }

    fn value(&mut self, setting: &Setting, value: &DeValue<'_>, line: usize) {
        let text = match value {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) => number.to_string(),
            DeValue::Float(number) => number.to_string(),
            DeValue::Boolean(yes) => yes.to_string(),
            other => {
                let wanted = match setting.kind {
                    Kind::Text => "a string",
                    Kind::Number => "a number",
                    Kind::Switch => "true or false",
                };
                return self.shape(setting.key.to_owned(), other, wanted, line);
            }
        };
        self.values.insert(setting.key, (text, line));
    }

    fn shape(&mut self, key: String, found: &DeValue<'_>, wanted: &'static str, line: usize) {
        let found = match found {
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a section",
            DeValue::Datetime(_) => "a date",
            DeValue::String(_) | DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) => "a single value",
        };
        self.errors.push(ConfigError::Shape { path: self.path.to_owned(), line, key, found, wanted });
    }

    fn line(&self, span: Range<usize>) -> usize {
        self.text.bytes().take(span.start).filter(|&byte| byte == b'\n').count().saturating_add(1)
    }
}

/// The key that was meant: the flag's name, the right name in the wrong section, or something that looks like it in its own section.
fn suggest(key: &str) -> Option<String> {
    let (section, name) = key.rsplit_once('.').unwrap_or(("", key));
    let name = name.replace('-', "_");
    let same = |setting: &&Setting| setting.flag.replace('-', "_") == name || split(setting).1 == name;
    if let Some(setting) = ALL.iter().find(same) {
        return Some(setting.key.to_owned());
    }
    let inside = ALL.iter().filter(|setting| split(setting).0 == section).map(|setting| split(setting).1);
    if section.is_empty() {
        return nearest(&name, inside.chain(ALL.iter().map(|setting| split(setting).0)).chain([CLASS]));
    }
    nearest(&name, inside).map(|name| format!("{section}.{name}"))
}

/// Section and name of a setting's key.
fn split(setting: &Setting) -> (&'static str, &'static str) {
    setting.key.rsplit_once('.').unwrap_or(("", setting.key))
}
