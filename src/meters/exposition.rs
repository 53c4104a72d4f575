//! Prometheus' text format (0.0.4): the lines of a metric.

use std::fmt::{Display, Write};

use crate::base::durations::Counted;

/// The meaning of a figure's changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Only grows, except for restarts and CONFIG RESETSTAT.
    Counter,
    /// Goes up and down.
    Gauge,
}

impl Kind {
    /// The name in the text.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        }
    }
}

/// Writes the head of a metric.
pub(crate) fn head(text: &mut String, metric: &str, kind: &str, help: &str) {
    // Writing to memory cannot fail.
    let _ = writeln!(text, "# HELP {metric} {help}\n# TYPE {metric} {kind}");
}

/// Writes one value of a metric, with the names and texts of its labels.
pub(crate) fn sample(text: &mut String, metric: &str, labels: &[(&str, &str)], value: impl Display) {
    text.push_str(metric);
    for (index, (name, label)) in labels.iter().enumerate() {
        text.push(if index == 0 { '{' } else { ',' });
        let label = label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = write!(text, "{name}=\"{label}\"");
    }
    text.push_str(if labels.is_empty() { "" } else { "}" });
    let _ = writeln!(text, " {value}");
}

/// Writes a metric with one sample.
pub(crate) fn single(text: &mut String, metric: &str, kind: Kind, help: &str, value: impl Display) {
    head(text, metric, kind.name(), help);
    sample(text, metric, &[], value);
}

/// Writes a histogram of seconds.
pub(crate) fn histogram(text: &mut String, metric: &str, help: &str, counted: &Counted) {
    head(text, metric, "histogram", help);
    let bucket = format!("{metric}_bucket");
    for (bound_s, count) in &counted.up_to {
        sample(text, &bucket, &[("le", &bound_s.to_string())], count);
    }
    sample(text, &bucket, &[("le", "+Inf")], counted.total);
    sample(text, &format!("{metric}_sum"), &[], counted.sum.as_secs_f64());
    sample(text, &format!("{metric}_count"), &[], counted.total);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut text = String::new();
        sample(&mut text, "m", &[("a", "x\"y\\z\n"), ("b", "")], 1.5);
        sample(&mut text, "n", &[], 7);
        assert_eq!(text, "m{a=\"x\\\"y\\\\z\\n\",b=\"\"} 1.5\nn 7\n");
    }
}
