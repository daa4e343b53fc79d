//! What was measured: medians over the rounds, and what they are held to.

use crate::cli::terminal;
use serde_json::{Value, json};
use std::io::{self, Write};

/// The values of one figure, one for each round.
struct Figure {
    name: String,
    unit: &'static str,
    values: Vec<f64>,
}

/// What a figure is held to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bound {
    /// No more than this.
    AtMost(f64),
    /// No less than this.
    AtLeast(f64),
}

struct Target {
    name: String,
    unit: &'static str,
    value: f64,
    bound: Bound,
}

impl Target {
    fn is_met(&self) -> bool {
        match self.bound {
            Bound::AtMost(most) => self.value <= most,
            Bound::AtLeast(least) => self.value >= least,
        }
    }
}

/// What one part of the benchmark came to.
pub(super) struct Part {
    name: &'static str,
    figures: Vec<Figure>,
    targets: Vec<Target>,
}

impl Part {
    /// Nothing yet.
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, figures: Vec::new(), targets: Vec::new() }
    }

    /// One round's value of a figure.
    pub(super) fn add(&mut self, name: impl Into<String>, unit: &'static str, value: f64) {
        let name = name.into();
        match self.figures.iter_mut().find(|figure| figure.name == name) {
            Some(figure) => figure.values.push(value),
            None => self.figures.push(Figure { name, unit, values: vec![value] }),
        }
    }

    /// As [`Part::add`], and the median of the figure is held to `bound`.
    pub(super) fn hold(&mut self, name: impl Into<String>, unit: &'static str, value: f64, bound: Bound) {
        let name = name.into();
        self.add(name.clone(), unit, value);
        let value = self.median(&name);
        match self.targets.iter_mut().find(|target| target.name == name) {
            Some(target) => target.value = value,
            None => self.targets.push(Target { name, unit, value, bound }),
        }
    }

    fn median(&self, name: &str) -> f64 {
        let figure = self.figures.iter().find(|figure| figure.name == name);
        figure.map_or(f64::NAN, |figure| quantile(&mut figure.values.clone(), 0.5))
    }

    /// As a part of the report.
    pub(super) fn json(&self) -> Value {
        let figures: Vec<Value> = self
            .figures
            .iter()
            .map(|figure| {
                let mut values = figure.values.clone();
                json!({
                    "name": figure.name,
                    "unit": figure.unit,
                    "median": rounded(quantile(&mut values, 0.5)),
                    "lowest": rounded(quantile(&mut values, 0.0)),
                    "highest": rounded(quantile(&mut values, 1.0)),
                    "rounds": values.len(),
                })
            })
            .collect();
        let targets: Vec<Value> = self
            .targets
            .iter()
            .map(|target| {
                let (bound, limit) = match target.bound {
                    Bound::AtMost(most) => ("at_most", most),
                    Bound::AtLeast(least) => ("at_least", least),
                };
                json!({
                    "name": target.name,
                    "unit": target.unit,
                    "median": rounded(target.value),
                    bound: limit,
                    "met": target.is_met(),
                })
            })
            .collect();
        json!({ "name": self.name, "figures": figures, "targets": targets })
    }

    /// For people.
    pub(super) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", self.name)?;
        for figure in &self.figures {
            let mut values = figure.values.clone();
            let (median, lowest, highest) =
                (quantile(&mut values, 0.5), quantile(&mut values, 0.0), quantile(&mut values, 1.0));
            let (name, unit) = (&figure.name, figure.unit);
            write!(out, "  {name:<52} {:>11} {unit:<8}", shown(median))?;
            if values.len() > 1 {
                write!(out, " {} to {}", shown(lowest), shown(highest))?;
            }
            writeln!(out)?;
        }
        for target in &self.targets {
            let (word, limit) = match target.bound {
                Bound::AtMost(most) => ("at most", most),
                Bound::AtLeast(least) => ("at least", least),
            };
            let met = if target.is_met() { "met" } else { "NOT MET" };
            let (name, unit) = (&target.name, target.unit);
            writeln!(out, "  {met:<8}{name:<44} {:>11} {unit:<8} {word} {}", shown(target.value), shown(limit))?;
        }
        writeln!(out)
    }
}

/// The whole report.
pub(super) fn json(parts: &[Part], rounds: u32, seconds: f64) -> Value {
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "optimised": !cfg!(debug_assertions),
        "processors": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        "rounds": rounds,
        "seconds": seconds,
        "parts": parts.iter().map(Part::json).collect::<Vec<Value>>(),
    })
}

/// Writes it as one object.
pub(super) fn print_json(parts: &[Part], rounds: u32, seconds: f64, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", terminal::json(&json(parts, rounds, seconds)))
}

/// The value below which this share of all values is: 0.5 is the median. Not a number where there is none.
pub(super) fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let Some(last) = values.len().checked_sub(1) else { return f64::NAN };
    // Positions are far below where a double stops counting.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let position = (last as f64 * share).round() as usize;
    values.get(position).copied().unwrap_or(f64::NAN)
}

fn rounded(value: f64) -> Value {
    // A figure that could not be had is null.
    json!((value * 1_000.0).round() / 1_000.0)
}

fn shown(value: f64) -> String {
    match value.abs() {
        size if size >= 1_000.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let mut values = [5.0, 1.0, 4.0, 2.0, 3.0];
        assert_eq!(quantile(&mut values, 0.5), 3.0);
        assert_eq!(quantile(&mut values, 0.0), 1.0);
        assert_eq!(quantile(&mut values, 1.0), 5.0);
        assert!(quantile(&mut [], 0.5).is_nan());
    }

    #[test]
    fn a_target_is_held_to_the_median_of_all_rounds() {
        let mut part = Part::new("part");
        for value in [9.0, 1.0, 2.0] {
            part.hold("cost", "us", value, Bound::AtMost(2.0));
            part.hold("share", "", value, Bound::AtLeast(3.0));
        }
        let json = part.json();
        assert_eq!(json["figures"][0]["median"], 2.0);
        assert_eq!(json["figures"][0]["highest"], 9.0);
        assert_eq!((&json["targets"][0]["met"], &json["targets"][0]["at_most"]), (&json!(true), &json!(2.0)));
        assert_eq!(json["targets"][1]["met"], false);
    }
}
