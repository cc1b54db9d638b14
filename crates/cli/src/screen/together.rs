//! Prints which models fit in memory at the same time, and what would have to be unloaded for each of the
//! others.

use plimsoll_base::{Bytes, Card, CardId, CardKind, Placement};
use plimsoll_report::{aligned, shortened, wrapped};
use plimsoll_serve::{Beside, CandidateVerdict};
use serde_json::{Value, json};

/// Columns of the sentences.
const WIDTH: usize = 80;
/// Columns of a model's name, so that the table stays within the width.
const NAME: usize = 34;

/// Models with what is known of them together.
#[derive(Debug)]
pub(crate) struct TogetherReport<'a> {
    pub(crate) cards: Vec<&'a Card>,
    pub(crate) models: Vec<TogetherRow<'a>>,
    /// No group has more models.
    pub(crate) most: usize,
}

/// One model.
#[derive(Debug)]
pub(crate) struct TogetherRow<'a> {
    pub(crate) name: &'a str,
    pub(crate) context: Option<u64>,
    /// The reason for which it can never be loaded, if there is one.
    pub(crate) verdict: Result<&'a CandidateVerdict, String>,
}

impl TogetherRow<'_> {
    pub(crate) fn alone(&self) -> Option<&Placement> {
        self.verdict.as_ref().ok().and_then(|verdict| verdict.alone.as_ref().ok())
    }

    /// The place of which the table has the memory: that of the group, else that without other models.
    fn shown(&self) -> Option<&Placement> {
        self.member().or_else(|| self.alone())
    }

    /// Its place in the group that fits at the same time.
    pub(crate) fn member(&self) -> Option<&Placement> {
        match &self.verdict.as_ref().ok()?.beside {
            Beside::Member(placement) => Some(placement),
            _ => None,
        }
    }

    /// The reason for which it fits on no cards, even without other models.
    pub(crate) fn refusal(&self) -> Option<String> {
        match &self.verdict {
            Err(reason) => Some(reason.clone()),
            Ok(verdict) => verdict.alone.as_ref().err().map(|never| never.reason.text.clone()),
        }
    }
}

impl TogetherReport<'_> {
    /// True if each model can be loaded.
    pub(crate) fn all_fit(&self) -> bool {
        self.models.iter().all(|model| model.alone().is_some())
    }

    /// True if all of them can be loaded at the same time.
    pub(crate) fn all_together(&self) -> bool {
        !self.models.is_empty() && self.models.iter().all(|model| model.member().is_some())
    }

    fn count(&self, is: impl Fn(&TogetherRow<'_>) -> bool) -> usize {
        self.models.iter().filter(|model| is(model)).count()
    }

    /// False if the search ended before it knew that no group is larger.
    fn is_largest(&self) -> bool {
        self.count(|model| model.member().is_some()) >= self.most
    }

    /// The verdict in one line.
    pub(crate) fn verdict(&self) -> String {
        let count = |is: &dyn Fn(&TogetherRow<'_>) -> bool| self.count(is);
        let together = count(&|model| model.member().is_some());
        let never = count(&|model| model.alone().is_none());
        let turns = self.models.len() - together - never;
        let (most, all) = (self.most, self.models.len());
        let mut parts = vec![match (self.all_together(), self.is_largest()) {
            (true, _) if together == 1 => "the model fits".to_owned(),
            (true, _) => format!("all {together} models fit at the same time"),
            (false, true) => format!("{together} of {all} models fit at the same time"),
            (false, false) => {
                format!("at least {together} and at most {most} of {all} models fit at the same time")
            }
        }];
        parts.extend((turns > 0).then(|| format!("{turns} can be loaded in place of others")));
        parts.extend((never > 0).then(|| format!("{never} cannot be loaded")));
        parts.join("; ")
    }

    /// The table, a sentence on each model that is not one of the group, and the verdict.
    pub(crate) fn in_words(&self) -> String {
        let heads = ["model", "context", "memory", "of host", "alone on", "together on"];
        let mut rows = vec![heads.map(str::to_owned).to_vec()];
        rows.extend(self.models.iter().map(|model| self.cells(model)));
        if !self.cards.iter().any(|card| self.is_beside(card)) {
            rows.iter_mut().for_each(|row| drop(row.remove(3)));
        }
        let line = |card: &&Card| {
            let name = self.number(&card.id).map_or_else(String::new, |number| format!("card {number}  "));
            format!("{name}{}  {} of {} free\n", card.id, card.free, card.total)
        };
        let mut text: String = self.cards.iter().map(line).collect();
        text += &format!("\n{}\n", aligned(&rows));
        for model in &self.models {
            for line in self.sentence(model).iter().flat_map(|line| wrapped(line, WIDTH, 2)) {
                text += &format!("{line}\n");
            }
        }
        for line in wrapped(&self.verdict(), WIDTH, 2) {
            text += &format!("{line}\n");
        }
        if !self.is_largest() {
            text += "The search ended at its limit of steps; by their sizes, no more than that fit.\n";
        }
        text
    }

    fn cells(&self, model: &TogetherRow<'_>) -> Vec<String> {
        let none = || "-".to_owned();
        let on = |placement: Option<&Placement>| placement.map_or_else(none, |it| self.numbers(it));
        vec![
            shortened(model.name, NAME),
            model.context.map_or_else(none, |tokens| tokens.to_string()),
            model.shown().map_or_else(none, |placement| self.bytes(placement, false).to_string()),
            model.shown().map_or_else(none, |placement| self.bytes(placement, true).to_string()),
            on(model.alone()),
            on(model.member()),
        ]
    }

    /// True for the host's memory beside cards, of which models take a part besides.
    fn is_beside(&self, card: &Card) -> bool {
        card.kind == CardKind::Host && self.cards.iter().any(|other| other.kind != CardKind::Host)
    }

    /// Bytes of a placement on cards, or of the host's memory beside them.
    fn bytes(&self, placement: &Placement, beside: bool) -> Bytes {
        let own = self.cards.iter().filter(|card| self.is_beside(card) == beside);
        own.map(|card| placement.on(&card.id)).sum()
    }

    /// The number of a card; `None` for the host's memory beside cards.
    fn number(&self, id: &CardId) -> Option<usize> {
        self.cards.iter().filter(|card| !self.is_beside(card)).position(|card| card.id == *id)
    }

    /// The numbers of the cards of a placement.
    fn numbers(&self, placement: &Placement) -> String {
        let used = placement.shares.iter().filter(|share| !share.bytes.is_zero());
        let mut numbers: Vec<usize> = used.filter_map(|share| self.number(&share.card)).collect();
        numbers.sort_unstable();
        let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
        if numbers.is_empty() { "no card".to_owned() } else { numbers.join("+") }
    }

    /// Names of the cards of a member, by which a configuration holds it to them.
    pub(crate) fn cards_of(&self, model: &TogetherRow<'_>) -> Vec<String> {
        let is_used = |card: &&&Card| {
            !self.is_beside(card) && model.member().is_some_and(|it| !it.on(&card.id).is_zero())
        };
        let name = |card: &&Card| card.uuid.clone().unwrap_or_else(|| card.id.to_string());
        self.cards.iter().filter(is_used).map(name).collect()
    }

    /// The cards of a model in the table, by their names: of the group, else without other models.
    pub(crate) fn place_of(&self, model: &TogetherRow<'_>) -> String {
        let is_used = |card: &&&Card| {
            model.shown().is_some_and(|it| !self.is_beside(card) && !it.on(&card.id).is_zero())
        };
        let names: Vec<&str> = self.cards.iter().filter(is_used).map(|card| card.id.as_str()).collect();
        names.join(" and ")
    }

    fn sentence(&self, model: &TogetherRow<'_>) -> Option<String> {
        if let Some(reason) = model.refusal() {
            return Some(format!("{}: cannot be loaded: {reason}", model.name));
        }
        match &model.verdict.as_ref().ok()?.beside {
            Beside::Member(_) => None,
            Beside::After { placement, leave } => Some(format!(
                "{}: loads on {} after {} left",
                model.name,
                self.numbers(placement),
                self.left(leave)
            )),
            Beside::Never => Some(format!("{}: does not fit beside the pinned models", model.name)),
        }
    }

    /// Models that left, with their verb.
    fn left(&self, leave: &[usize]) -> String {
        let names: Vec<&str> = leave.iter().filter_map(|index| Some(self.models.get(*index)?.name)).collect();
        match &names[..] {
            [name] => format!("{name} has"),
            [others @ .., last] => format!("{} and {last} have", others.join(", ")),
            [] => "others have".to_owned(),
        }
    }

    /// The same for programs: `more` adds to each model.
    pub(crate) fn as_json(&self, mut more: impl FnMut(usize) -> Value) -> Value {
        let card = |card: &&Card| json!({ "id": card.id, "name": card.name, "free": card.free, "total": card.total });
        let names = |indices: &[usize]| -> Vec<&str> {
            indices.iter().filter_map(|index| Some(self.models.get(*index)?.name)).collect()
        };
        let mut models = Vec::new();
        for (index, model) in self.models.iter().enumerate() {
            let after = match model.verdict.as_ref().map(|verdict| &verdict.beside) {
                Ok(Beside::After { placement, leave }) => {
                    json!({ "shares": placement.shares, "leave": names(leave) })
                }
                _ => Value::Null,
            };
            let mut value = json!({
                "name": model.name, "context": model.context, "fits": model.alone().is_some(),
                "memory": model.shown().map(|it| self.bytes(it, false)),
                "host_memory": model.shown().map(|it| self.bytes(it, true)), "alone": model.alone().map(|it| &it.shares),
                "together": model.member().map(|it| &it.shares), "after": after, "reason": model.refusal(),
            });
            if let (Value::Object(value), Value::Object(more)) = (&mut value, more(index)) {
                value.extend(more);
            }
            models.push(value);
        }
        let members = self.models.iter().filter(|model| model.member().is_some()).map(|model| model.name);
        json!({
            "cards": self.cards.iter().map(card).collect::<Vec<_>>(), "models": models,
            "together": members.collect::<Vec<_>>(), "is_largest": self.is_largest(), "at_most": self.most, "verdict": self.verdict(),
        })
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_base::{Bytes, Share};

    use super::*;

    fn placement(card: &str, gib: u64) -> Placement {
        Placement { shares: vec![Share::new(CardId::new(card), Bytes::gib(gib))], alone: false }
    }

    #[test]
    fn a_table_names_cards_by_number_and_those_who_leave_by_name() {
        let cards: [Card; 2] = ["name=A,total=24GiB", "name=B,total=16GiB"].map(|text| text.parse().unwrap());
        let member =
            CandidateVerdict { alone: Ok(placement("B", 9)), beside: Beside::Member(placement("B", 9)) };
        let after = CandidateVerdict {
            alone: Ok(placement("A", 20)),
            beside: Beside::After { placement: placement("A", 20), leave: vec![0] },
        };
        let row = |name, verdict| TogetherRow { name, context: Some(8192), verdict };
        let report = TogetherReport {
            cards: cards.iter().collect(),
            models: vec![
                row("small", Ok(&member)),
                row("large", Ok(&after)),
                TogetherRow {
                    name: "torn",
                    context: None,
                    verdict: Err("torn.gguf: it is cut off".to_owned()),
                },
            ],
            most: 1,
        };
        let text = report.in_words();
        let expected = "\
card 0  A  24576 MiB of 24576 MiB free
card 1  B  16384 MiB of 16384 MiB free

model  context     memory  alone on  together on
small     8192   9216 MiB         1            1
large     8192  20480 MiB         0            -
torn         -          -         -            -

large: loads on 0 after small has left
torn: cannot be loaded: torn.gguf: it is cut off
1 of 3 models fit at the same time; 1 can be loaded in place of others; 1 cannot
  be loaded
";
        assert_eq!(text, expected);
        assert!(!report.all_fit());
        let json = report.as_json(|_| json!({ "file": "f" }));
        assert_eq!(json["models"][1]["after"]["leave"][0], "small");
        assert_eq!(json["models"][2]["file"], "f");
        assert_eq!(json["together"], json!(["small"]));
    }

    #[test]
    fn the_hosts_memory_has_a_column_and_the_memory_is_that_of_the_shown_place() {
        let texts = ["name=A,total=24GiB", "name=B,total=16GiB", "name=host,kind=host,total=64GiB"];
        let cards: [Card; 3] = texts.map(|text| text.parse().unwrap());
        let on = |card: &str, mib: u64| {
            let shares = [(card, mib), ("host", 300)];
            let share = |(card, mib): (&str, u64)| Share::new(CardId::new(card), Bytes::mib(mib));
            Placement { shares: shares.into_iter().map(share).collect(), alone: false }
        };
        let member = CandidateVerdict { alone: Ok(on("B", 900)), beside: Beside::Member(on("A", 1000)) };
        let report = TogetherReport {
            cards: cards.iter().collect(),
            models: vec![
                TogetherRow { name: "a", context: Some(8192), verdict: Ok(&member) },
                TogetherRow { name: "b", context: None, verdict: Err("torn".to_owned()) },
            ],
            most: 2,
        };
        let text = report.in_words();
        let expected = "\
card 0  A  24576 MiB of 24576 MiB free
card 1  B  16384 MiB of 16384 MiB free
host  65536 MiB of 65536 MiB free

model  context    memory  of host  alone on  together on
a         8192  1000 MiB  300 MiB         1            0
b            -         -        -         -            -

b: cannot be loaded: torn
at least 1 and at most 2 of 2 models fit at the same time; 1 cannot be loaded
The search ended at its limit of steps; by their sizes, no more than that fit.
";
        assert_eq!(text, expected);
        assert_eq!(report.place_of(&report.models[0]), "A");
        assert_eq!(report.cards_of(&report.models[0]), ["A"]);
    }
}
