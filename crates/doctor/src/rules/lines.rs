//! Applies the rules of `lines.tsv`, in which a single line of a log shows the cause.

use std::sync::LazyLock;

use super::{EvidenceWeight, RuleFinding, RuleHit};
use crate::cause::{Cause, SubCause};
use crate::facts::Facts;
use crate::pattern::Pattern;

static ROWS: LazyLock<Vec<LineRule>> = LazyLock::new(|| written().filter_map(LineRule::read).collect());

fn written() -> impl Iterator<Item = &'static str> {
    include_str!("lines.tsv").lines().filter(|row| !row.starts_with("# "))
}

struct LineRule {
    name: &'static str,
    pattern: Pattern,
    cause: Cause,
    sub_cause: Option<SubCause>,
    weight: EvidenceWeight,
    condition: &'static str,
    text: &'static str,
    source: &'static str,
}

impl LineRule {
    fn read(row: &'static str) -> Option<Self> {
        let mut cells = row.split('\t');
        Some(Self {
            name: cells.next()?,
            pattern: Pattern::named(cells.next()?)?,
            cause: named(Cause::ALL, Cause::code, cells.next()?)?,
            sub_cause: named(SubCause::ALL, SubCause::code, cells.next()?),
            weight: EvidenceWeight::named(cells.next()?)?,
            condition: cells.next()?,
            text: cells.next()?,
            source: cells.next()?,
        })
    }

    fn holds(&self, facts: &Facts) -> bool {
        match self.condition {
            "in_memory" => !facts.ran_out(),
            "unrefused" => facts.refusals.is_empty() && facts.torch.is_none(),
            "unplaced" => facts.buffers.is_empty(),
            "not_torch" => facts.torch.is_none(),
            _ => true,
        }
    }
}

fn named<T: Copy>(all: &[T], code: fn(T) -> &'static str, name: &str) -> Option<T> {
    all.iter().copied().find(|one| code(*one) == name)
}

pub(super) fn hits(facts: &Facts) -> impl Iterator<Item = RuleHit> {
    ROWS.iter().filter(|rule| rule.holds(facts)).filter_map(|rule| {
        let finding = RuleFinding::new(rule.cause, rule.weight, rule.text, [facts.quote(rule.pattern)?]);
        Some(RuleHit { name: rule.name, source: rule.source, finding: finding.by(rule.sub_cause) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_table_is_a_rule() {
        assert_eq!(ROWS.len(), written().count());
        for rule in ROWS.iter() {
            assert!(
                ["-", "in_memory", "unrefused", "not_torch", "unplaced"].contains(&rule.condition),
                "{}",
                rule.name
            );
        }
    }
}
