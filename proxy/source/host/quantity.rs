//! Amounts as Kubernetes writes them (`k8s.io/apimachinery/pkg/api/resource`), as whole numbers, rounded up. Pure.

/// The factors that a suffix stands for. `m` is a thousandth.
const SUFFIXES: [(&str, u64); 12] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
    ("Ei", 1 << 60),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("E", 1_000_000_000_000_000_000),
];

/// `50Mi`, `1.5Gi`, `500m`, `1e3`; `None` where it is no amount, is negative, or does not fit.
#[must_use]
pub(super) fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    let (number, factor, divisor) = if let Some(number) = text.strip_suffix('m') {
        (number, 1, 1000)
    } else if let Some((number, factor)) = SUFFIXES.iter().find_map(|(suffix, f)| Some((text.strip_suffix(suffix)?, *f))) {
        (number, factor, 1)
    } else if let Some((number, power)) = text.split_once(['e', 'E']) {
        (number, 10_u64.checked_pow(power.parse().ok()?)?, 1)
    } else {
        (text, 1, 1)
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{part}");
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let scale = 10_u128.checked_pow(u32::try_from(part.len()).ok()?)?.checked_mul(divisor)?;
    let product = digits.parse::<u128>().ok()?.checked_mul(u128::from(factor))?;
    u64::try_from(product.div_ceil(scale)).ok()
}

/// The same, for [`crate::fuzzing`].
#[cfg(feature = "fuzzing")]
pub fn amount(text: &str) -> Option<u64> {
    parse(text)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn amounts_are_read_as_kubernetes_writes_them() {
        for (text, amount) in [
            ("0", 0),
            ("128", 128),
            ("50Mi", 50 << 20),
            ("1.5Gi", 3 << 29),
            ("1G", 1_000_000_000),
            ("500m", 1),
            ("1500m", 2),
            ("1e3", 1000),
            (" 2Ki ", 2048),
        ] {
            assert_eq!(parse(text), Some(amount), "{text}");
        }
    }

    #[test]
    fn what_is_no_amount_is_none() {
        for text in ["", "Mi", "-1", "1 Mi", "1Xi", "1e-3", "1e99", "99999999999Ei", "0x10", "½", "."] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
