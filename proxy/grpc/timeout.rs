//! The client's deadline: header `grpc-timeout`, an integer of at most eight digits and a unit.

use std::time::Duration;

/// Why a `grpc-timeout` could not be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimeoutError {
    /// Empty, or a unit alone.
    #[error("timeout {0:?} is too short; expected digits and a unit, such as \"10S\"")]
    TooShort(String),
    /// More than the eight digits that the protocol allows.
    #[error("timeout {0:?} is too long; at most 8 digits and a unit are allowed")]
    TooLong(String),
    /// The last byte is no unit.
    #[error("timeout {0:?} has no known unit; expected one of H, M, S, m, u, n")]
    Unit(String),
    /// Something before the unit is not a digit.
    #[error("timeout {0:?} is not a number; expected digits and a unit, such as \"10S\"")]
    Digits(String),
}

/// How many digits the protocol allows.
const MAX_DIGITS: usize = 8;

/// Reads the value of a `grpc-timeout` header. The largest is 99,999,999 hours.
pub fn parse_timeout(value: &[u8]) -> Result<Duration, TimeoutError> {
    // What a client sent is shown in the error, so it is kept short here.
    let shown = || String::from_utf8_lossy(&value[..value.len().min(MAX_DIGITS + 8)]).into_owned();
    let Some((unit, digits)) = value.split_last().filter(|(_, digits)| !digits.is_empty()) else {
        return Err(TimeoutError::TooShort(shown()));
    };
    if digits.len() > MAX_DIGITS {
        return Err(TimeoutError::TooLong(shown()));
    }
    let mut count = 0_u64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return Err(TimeoutError::Digits(shown()));
        }
        count = count * 10 + u64::from(digit - b'0');
    }
    match unit {
        b'H' => Ok(Duration::from_hours(count)),
        b'M' => Ok(Duration::from_mins(count)),
        b'S' => Ok(Duration::from_secs(count)),
        b'm' => Ok(Duration::from_millis(count)),
        b'u' => Ok(Duration::from_micros(count)),
        b'n' => Ok(Duration::from_nanos(count)),
        _ => Err(TimeoutError::Unit(shown())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_of_the_protocol_is_read() {
        for (text, expected) in [
            ("2H", Duration::from_hours(2)),
            ("3M", Duration::from_mins(3)),
            ("10S", Duration::from_secs(10)),
            ("250m", Duration::from_millis(250)),
            ("7u", Duration::from_micros(7)),
            ("99999999n", Duration::from_nanos(99_999_999)),
            ("0S", Duration::ZERO),
            ("99999999H", Duration::from_hours(99_999_999)),
        ] {
            assert_eq!(parse_timeout(text.as_bytes()), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_timeout_is_an_error_that_shows_it() {
        use TimeoutError as E;
        assert_eq!(parse_timeout(b""), Err(E::TooShort(String::new())));
        assert_eq!(parse_timeout(b"S"), Err(E::TooShort("S".into())));
        assert_eq!(parse_timeout(b"123456789S"), Err(E::TooLong("123456789S".into())));
        assert_eq!(parse_timeout(b"10"), Err(E::Unit("10".into())));
        assert_eq!(parse_timeout(b"-1S"), Err(E::Digits("-1S".into())));
        assert_eq!(parse_timeout(b"1.5S"), Err(E::Digits("1.5S".into())));
        let long = parse_timeout(&[b'9'; 4000]).unwrap_err();
        assert!(long.to_string().len() < 100, "{long}");
    }
}
