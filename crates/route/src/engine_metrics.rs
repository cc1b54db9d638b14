//! Joins the metrics of all engines into one page in Prometheus' text format, with a label for the model.
//!
//! Engines are untrusted: lines that are malformed or exceed the limits are left out.
//!
//! DECISION: with a single configured model, its engine's series are passed on without the label. Tools that
//! read the page of a llama-server alone (dashboards, its own tests) can then read this one.

use std::collections::{BTreeMap, HashSet};

use super::exposition::escaped;

/// Samples of one engine, and characters of a line and of a help text.
const MOST_SAMPLES: usize = 10_000;
const LONGEST_LINE: usize = 4096;
const LONGEST_HELP: usize = 400;
/// Families of this name are this server's own.
const OWN: &str = "plimsoll_";
const KINDS: [&str; 5] = ["counter", "gauge", "histogram", "summary", "untyped"];

#[derive(Debug, Default)]
struct MetricFamily {
    help: String,
    kind: Option<&'static str>,
    samples: Vec<String>,
}

impl MetricFamily {
    fn kind(&self) -> &'static str {
        self.kind.unwrap_or("untyped")
    }
}

/// Families of all engines, by name.
#[derive(Debug, Default)]
pub(crate) struct EngineMetrics(BTreeMap<String, MetricFamily>);

impl EngineMetrics {
    /// Adds the page of a model's engine, with the model's name as a label where it is given.
    pub(crate) fn add(&mut self, model: Option<&str>, page: &str) {
        // Kinds on this page; where another engine says otherwise, the first one counts.
        let (mut kinds, mut seen) = (BTreeMap::new(), HashSet::new());
        for line in page.lines().filter(|line| line.len() <= LONGEST_LINE) {
            let line = line.trim();
            match line.strip_prefix('#').map(|comment| comment.trim_start()) {
                Some(comment) => self.head(comment, &mut kinds),
                None if seen.len() < MOST_SAMPLES => {
                    let _ = self.sample(model, line, &kinds, &mut seen);
                }
                None => return,
            }
        }
    }

    fn head(&mut self, comment: &str, kinds: &mut BTreeMap<String, &'static str>) {
        let mut words = comment.splitn(3, ' ');
        let (Some(what), Some(name), text) = (words.next(), words.next(), words.next().unwrap_or_default())
        else {
            return;
        };
        if !is_name(name) || name.starts_with(OWN) || kinds.len() >= MOST_SAMPLES {
            return;
        }
        match what {
            "HELP" => {
                let family = self.0.entry(name.to_owned()).or_default();
                if family.help.is_empty() {
                    family.help = text.chars().take(LONGEST_HELP).collect();
                }
            }
            "TYPE" => {
                let Some(kind) = KINDS.iter().find(|kind| **kind == text.trim()) else { return };
                kinds.insert(name.to_owned(), kind);
                self.0.entry(name.to_owned()).or_default().kind.get_or_insert(kind);
            }
            _ => {}
        }
    }

    /// Adds a sample; `None` for any other line.
    fn sample(
        &mut self,
        model: Option<&str>,
        line: &str,
        kinds: &BTreeMap<String, &'static str>,
        seen: &mut HashSet<String>,
    ) -> Option<()> {
        let end = line.find(['{', ' ', '\t'])?;
        let (name, rest) = line.split_at(end);
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(rest) => labels(rest)?,
            None => (Vec::new(), rest),
        };
        // A time of the engine's clock would hide the sample from a scrape at another.
        let value = rest.split_whitespace().next()?;
        value.parse::<f64>().ok()?;
        if !is_name(name) || name.starts_with(OWN) {
            return None;
        }
        let (family, kind) = family_of(name, kinds);
        let family = self.0.entry(family.to_owned()).or_default();
        if family.kind() != kind && family.kind.is_some() {
            return None;
        }
        let series = series(name, model, &labels);
        if !seen.insert(series.clone()) {
            return None;
        }
        family.samples.push(format!("{series} {value}\n"));
        Some(())
    }

    /// The families that have samples.
    pub(crate) fn finish(self) -> String {
        let mut page = String::new();
        for (name, family) in self.0.iter().filter(|(_, family)| !family.samples.is_empty()) {
            if !family.help.is_empty() {
                page += &format!("# HELP {name} {}\n", family.help);
            }
            page += &format!("# TYPE {name} {}\n", family.kind());
            page.extend(family.samples.iter().map(String::as_str));
        }
        page
    }
}

/// A series with its labels.
fn series(name: &str, model: Option<&str>, labels: &[(&str, &str)]) -> String {
    let own = model.map(|model| format!("model=\"{}\"", escaped(model)));
    let engines = labels.iter().map(|(label, text)| {
        // The engine's own label of this name, as Prometheus renames it.
        let label = if *label == "model" && model.is_some() { "exported_model" } else { label };
        format!("{label}=\"{text}\"")
    });
    match own.into_iter().chain(engines).collect::<Vec<_>>() {
        labels if labels.is_empty() => name.to_owned(),
        labels => format!("{name}{{{}}}", labels.join(",")),
    }
}

/// The family of a sample, and its kind on the engine's page.
fn family_of<'a>(name: &'a str, kinds: &BTreeMap<String, &'static str>) -> (&'a str, &'static str) {
    let parts = ["_bucket", "_sum", "_count"].iter().filter_map(|end| name.strip_suffix(end));
    let of_parts = parts
        .filter_map(|family| Some((family, *kinds.get(family)?)))
        .find(|(_, kind)| ["histogram", "summary"].contains(kind));
    of_parts.unwrap_or_else(|| (name, kinds.get(name).copied().unwrap_or("untyped")))
}

/// The pairs up to the closing brace, with their escapes as they are, and what follows it.
fn labels(mut rest: &str) -> Option<(Vec<(&str, &str)>, &str)> {
    let mut labels: Vec<(&str, &str)> = Vec::new();
    loop {
        rest = rest.trim_start_matches([' ', ',']);
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        let (name, after) = rest.split_once('=')?;
        let text = after.trim_start().strip_prefix('"')?;
        let mut escapes = false;
        let end = text.find(|letter| {
            let ends = letter == '"' && !escapes;
            escapes = letter == '\\' && !escapes;
            ends
        })?;
        let name = name.trim();
        let is_new = name != "exported_model" && labels.iter().all(|(known, _)| *known != name);
        if !is_name(name) || name.contains(':') || !is_new {
            return None;
        }
        labels.push((name, &text[..end]));
        rest = &text[end + 1..];
    }
}

fn is_name(name: &str) -> bool {
    let begins = name.starts_with(|letter: char| letter.is_ascii_alphabetic() || "_:".contains(letter));
    begins && name.chars().all(|letter| letter.is_ascii_alphanumeric() || "_:".contains(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(pages: &[(&str, &str)]) -> String {
        let mut all = EngineMetrics::default();
        pages.iter().for_each(|(model, page)| all.add(Some(model), page));
        all.finish()
    }

    #[test]
    fn pages_of_two_engines_are_one_page_with_a_label() {
        let page = "# HELP llamacpp:x how many\n# TYPE llamacpp:x gauge\nllamacpp:x 1\n\
            # TYPE t histogram\nt_bucket{le=\"1\"} 2\nt_bucket{le=\"+Inf\"} 2 1700000000000\nt_sum 0.5\nt_count 2\n";
        assert_eq!(
            merged(&[
                ("a", page),
                ("b\"\n", "# TYPE llamacpp:x gauge\nllamacpp:x{model=\"own\",slot=\"1\"} 2\nnone 3")
            ]),
            "# HELP llamacpp:x how many\n# TYPE llamacpp:x gauge\nllamacpp:x{model=\"a\"} 1\n\
             llamacpp:x{model=\"b\\\"\\n\",exported_model=\"own\",slot=\"1\"} 2\n\
             # TYPE none untyped\nnone{model=\"b\\\"\\n\"} 3\n\
             # TYPE t histogram\nt_bucket{model=\"a\",le=\"1\"} 2\nt_bucket{model=\"a\",le=\"+Inf\"} 2\n\
             t_sum{model=\"a\"} 0.5\nt_count{model=\"a\"} 2\n"
        );
    }

    #[test]
    fn the_page_of_the_only_engine_keeps_its_series() {
        let page = "# HELP llamacpp:x how many\n# TYPE llamacpp:x gauge\nllamacpp:x 1\n\
            # TYPE y counter\ny{model=\"own\",slot=\"1\"} 2\n";
        let mut all = EngineMetrics::default();
        all.add(
            None,
            &format!("{page}plimsoll_loads_total 99\ny{{model=\"own\",slot=\"1\"}} 3\nz{{a=\"1\"\n"),
        );
        assert_eq!(all.finish(), page, "and nothing of ours, nothing twice, nothing unreadable");
    }

    #[test]
    fn malformed_and_reserved_engine_metrics_are_dropped() {
        for line in [
            "plimsoll_requests_total{model=\"a\"} 99",
            "# TYPE plimsoll_model_ready counter",
            "x",
            "x one",
            "x{a=\"1} 2",
            "x{a=\"1\",a=\"2\"} 2",
            "x{exported_model=\"1\"} 2",
            "x{a=1} 2",
            "x{a:b=\"1\"} 2",
            "9x 1",
            "x\u{202e} 1",
            "{} 1",
            "<script> 1",
        ] {
            assert_eq!(merged(&[("m", line)]), "", "{line}");
        }
        assert_eq!(
            merged(&[("m", "x 1\nx 2\n")]),
            "# TYPE x untyped\nx{model=\"m\"} 1\n",
            "twice the same series"
        );
        let kinds = merged(&[("a", "# TYPE x gauge\nx 1"), ("b", "# TYPE x counter\nx 2")]);
        assert_eq!(kinds, "# TYPE x gauge\nx{model=\"a\"} 1\n", "the first kind counts");
    }

    #[test]
    fn a_page_is_bounded_whatever_it_holds() {
        let long = format!("x{{a=\"{}\"}} 1\n", "y".repeat(LONGEST_LINE));
        assert_eq!(merged(&[("m", &long)]), "");
        let many: String = (0..20_000).map(|number| format!("x{number} 1\n")).collect();
        assert_eq!(merged(&[("m", &many)]).lines().count(), 2 * MOST_SAMPLES);
    }
}
