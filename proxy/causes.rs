//! Errors told to people: an error and all its causes, on one line.

use std::error::Error;

/// The error's text and its causes', from the outermost in. A cause that only repeats its parent is left out.
pub(crate) fn with_causes(error: &(impl Error + ?Sized)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.ends_with(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = error.source();
    }
    text
}
