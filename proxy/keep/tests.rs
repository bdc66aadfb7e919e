//! Saving and reading back, in real directories.
