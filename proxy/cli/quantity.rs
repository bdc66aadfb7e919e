//! Amounts of memory as Kubernetes writes them: `64Mi`, `1.5Gi`.

/// The largest unit that leaves at least one whole, with one decimal where it does not come out even.
pub(super) fn memory(bytes: u64) -> String {
    const UNITS: [(&str, u32); 5] = [("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)];
    let Some((unit, shift)) = UNITS.iter().find(|(_, shift)| bytes >> shift > 0) else { return bytes.to_string() };
    let (whole, rest) = (bytes >> shift, bytes & !(u64::MAX << shift));
    // Downwards: what is free must not look like more than it is. `rest` is below 2^50, so ten times it fits.
    let tenths = rest.saturating_mul(10) >> shift;
    if tenths == 0 { format!("{whole}{unit}") } else { format!("{whole}.{tenths}{unit}") }
}

#[cfg(test)]
mod tests {
    use super::memory;

    #[test]
    fn amounts_read_as_in_a_pod_spec() {
        let texts = [0, 1023, 1024, 1536, 64 << 20, 3 << 29, (1 << 40) - 1, u64::MAX].map(memory);
        assert_eq!(texts, ["0", "1023", "1Ki", "1.5Ki", "64Mi", "1.5Gi", "1023.9Gi", "16383.9Pi"]);
    }
}
