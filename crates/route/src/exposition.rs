//! Writes metrics in Prometheus' text format: counters, gauges and histograms.

use std::fmt::{self, Write};

/// Metrics page that is being written. Samples of one family must follow its `family` line.
#[derive(Debug, Default)]
pub struct Exposition(String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

impl Exposition {
    pub fn family(&mut self, name: &str, kind: MetricKind, help: &str) {
        let kind = match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl fmt::Display) {
        self.0.push_str(name);
        for (place, (label, text)) in labels.iter().enumerate() {
            let open = if place == 0 { '{' } else { ',' };
            self.line(format_args!("{open}{label}=\"{}\"", escaped(text)));
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        self.line(format_args!(" {value}\n"));
    }

    pub fn histogram(&mut self, name: &str, labels: &[(&str, &str)], histogram: &Histogram) {
        let bucket = format!("{name}_bucket");
        let mut all = 0;
        for (place, count) in histogram.counts.iter().enumerate() {
            all += count;
            let bound = histogram.bounds.get(place).map_or("+Inf".to_owned(), f64::to_string);
            self.sample(&bucket, &[labels, &[("le", &bound)]].concat(), all);
        }
        self.sample(&format!("{name}_sum"), labels, histogram.sum);
        self.sample(&format!("{name}_count"), labels, all);
    }

    pub fn finish(self) -> String {
        self.0
    }

    fn line(&mut self, text: fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.0.write_fmt(text);
    }
}

pub(super) fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        // Backslashes first, or the others would be escaped twice.
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// Upper bounds in seconds: from a cached answer to a cold load and a long prompt.
const SECONDS: [f64; 14] = [0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];
/// Upper bounds in tokens: from a classification to a long context.
const TOKENS: [f64; 14] = [
    1.0, 8.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16_384.0, 32_768.0, 131_072.0,
];

#[derive(Clone, Debug)]
pub struct Histogram {
    bounds: &'static [f64; 14],
    counts: [u64; 15],
    sum: f64,
}

impl Histogram {
    pub const fn of_seconds() -> Self {
        Self { bounds: &SECONDS, counts: [0; 15], sum: 0.0 }
    }

    pub const fn of_tokens() -> Self {
        Self { bounds: &TOKENS, counts: [0; 15], sum: 0.0 }
    }

    pub fn add(&mut self, value: f64) {
        let bound = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bound] += 1;
        self.sum += value;
    }

    pub fn is_empty(&self) -> bool {
        self.counts.iter().all(|count| *count == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_the_text_format_with_labels_escaped_and_buckets_added_up() {
        let mut page = Exposition::default();
        page.family("x_total", MetricKind::Counter, "how often");
        page.sample("x_total", &[("model", "a\"b\\"), ("code", "2xx")], 3);
        page.sample("x_total", &[], 4);
        let mut histogram = Histogram::of_seconds();
        [0.001, 0.002, 700.0].into_iter().for_each(|time| histogram.add(time));
        page.histogram("y", &[("model", "a")], &histogram);
        let page = page.finish();
        assert!(page.starts_with(
            "# HELP x_total how often\n# TYPE x_total counter\n\
             x_total{model=\"a\\\"b\\\\\",code=\"2xx\"} 3\nx_total 4\n\
             y_bucket{model=\"a\",le=\"0.001\"} 1\ny_bucket{model=\"a\",le=\"0.005\"} 2\n"
        ));
        assert!(page.ends_with(
            "y_bucket{model=\"a\",le=\"+Inf\"} 3\ny_sum{model=\"a\"} 700.003\ny_count{model=\"a\"} 3\n"
        ));
    }
}
