//! Figures of all rounds, and what comes of them.

use std::fmt;
use std::time::Duration;

/// CPU time per request, by variant and round. The first variant is what the others are held against.
pub(crate) struct Table {
    columns: Vec<(&'static str, Vec<Duration>)>,
}

impl Table {
    pub(crate) fn new(names: impl Iterator<Item = &'static str>) -> Self {
        Self { columns: names.map(|name| (name, Vec::new())).collect() }
    }

    pub(crate) fn add(&mut self, column: usize, spent: Duration) {
        self.columns[column].1.push(spent);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let base = &self.columns[0].1;
        writeln!(f, "| served by | CPU per List, median | to the echo, median | least | most |\n|---|---|---|---|---|")?;
        for (name, spent) in &self.columns {
            let micros = median(spent.iter().map(|spent| spent.as_secs_f64() * 1e6));
            let ratios: Vec<f64> = spent.iter().zip(base).map(|(spent, base)| spent.as_secs_f64() / base.as_secs_f64()).collect();
            let (least, most) =
                ratios.iter().fold((f64::MAX, 0.0_f64), |(least, most), ratio| (least.min(*ratio), most.max(*ratio)));
            let ratio = median(ratios.into_iter());
            writeln!(f, "| {name} | {micros:.1} µs | {ratio:.2} | {least:.2} | {most:.2} |")?;
        }
        Ok(())
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
