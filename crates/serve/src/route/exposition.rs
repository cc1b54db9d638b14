//! Writer of Prometheus' text format for metrics: counters, gauges and histograms.

use std::fmt::{self, Write};
use std::time::Duration;

/// Metrics page that is being written. Samples of one family must follow its `family` line.
#[derive(Debug, Default)]
pub(crate) struct Exposition(String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

impl Exposition {
    pub(crate) fn family(&mut self, name: &str, kind: MetricKind, help: &str) {
        let kind = match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    pub(crate) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl fmt::Display) {
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

    pub(crate) fn histogram(&mut self, name: &str, labels: &[(&str, &str)], histogram: &Histogram) {
        let bucket = format!("{name}_bucket");
        let mut all = 0;
        for (place, count) in histogram.counts.iter().enumerate() {
            all += count;
            let bound = BOUNDS.get(place).map_or("+Inf".to_owned(), |bound| seconds(*bound).to_string());
            self.sample(&bucket, &[labels, &[("le", &bound)]].concat(), all);
        }
        self.sample(&format!("{name}_sum"), labels, histogram.sum.as_secs_f64());
        self.sample(&format!("{name}_count"), labels, all);
    }

    pub(crate) fn finish(self) -> String {
        self.0
    }

    fn line(&mut self, text: fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.0.write_fmt(text);
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        // Backslashes first, or the others would be escaped twice.
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

fn seconds(milliseconds: u64) -> f64 {
    Duration::from_millis(milliseconds).as_secs_f64()
}

/// Upper bounds in milliseconds: from a cached answer to a cold load and a long prompt.
const BOUNDS: [u64; 14] = [1, 5, 20, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 300_000];

#[derive(Clone, Debug, Default)]
pub(crate) struct Histogram {
    counts: [u64; BOUNDS.len() + 1],
    sum: Duration,
}

impl Histogram {
    pub(crate) fn add(&mut self, time: Duration) {
        let bound = BOUNDS.partition_point(|bound| Duration::from_millis(*bound) < time);
        self.counts[bound] += 1;
        self.sum += time;
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
        let mut histogram = Histogram::default();
        for time in [1, 2, 700_000] {
            histogram.add(Duration::from_millis(time));
        }
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
