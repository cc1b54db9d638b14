//! Parses llama-swap's `matrix`, whose expressions (`(a | b) & c`, `+other`) say which models may run
//! together (`internal/matrix @ v250`).

use std::collections::{BTreeMap, BTreeSet};

type Sets = Vec<BTreeSet<String>>;

/// Most sets of one expression and of a file: each `&` multiplies them.
const MOST: usize = 1000;
/// Most parentheses within each other.
const DEPTH: usize = 32;

/// Reads expressions over models and variables.
pub(super) struct ModelSets<'a> {
    known: &'a [String],
    variables: BTreeMap<String, String>,
    named: BTreeMap<String, Sets>,
    all: Sets,
}

impl<'a> ModelSets<'a> {
    pub(super) fn new(known: &'a [String]) -> Self {
        Self { known, variables: BTreeMap::new(), named: BTreeMap::new(), all: Vec::new() }
    }

    pub(super) fn variable(&mut self, name: &str, model: &str) {
        self.variables.insert(name.to_owned(), model.to_owned());
    }

    /// Adds the sets of an expression; an error says why it has none.
    pub(super) fn add(&mut self, name: &str, expression: &str) -> Result<(), String> {
        let mut words = Words { rest: expression, sets: self, depth: 0 };
        let sets = words.alternatives()?;
        match words.peek() {
            None => {}
            Some(other) => return Err(format!("`{other}` follows the end of the expression")),
        }
        if self.all.len() + sets.len() > MOST {
            return Err(format!("the file has more than {MOST} sets"));
        }
        self.all.extend(sets.iter().filter(|set| !self.all.contains(set)).cloned().collect::<Vec<_>>());
        self.named.insert(name.to_owned(), sets);
        Ok(())
    }

    pub(super) fn done(self) -> Sets {
        self.all
    }

    fn model(&self, word: &str) -> Result<Sets, String> {
        let name = self.variables.get(word).map_or(word, String::as_str);
        if self.known.iter().any(|known| known == name) {
            Ok(vec![BTreeSet::from([name.to_owned()])])
        } else {
            Err(format!("`{word}` is no model"))
        }
    }
}

struct Words<'a, 'b> {
    rest: &'a str,
    sets: &'a ModelSets<'b>,
    depth: usize,
}

impl<'a> Words<'a, '_> {
    fn peek(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start();
        self.rest.chars().next()
    }

    fn takes(&mut self, mark: char) -> bool {
        let is_next = self.peek() == Some(mark);
        if is_next {
            self.rest = &self.rest[mark.len_utf8()..];
        }
        is_next
    }

    fn alternatives(&mut self) -> Result<Sets, String> {
        let mut sets = self.together()?;
        while self.takes('|') {
            sets.extend(self.together()?);
            few(&sets)?;
        }
        Ok(sets)
    }

    fn together(&mut self) -> Result<Sets, String> {
        let mut sets = self.one()?;
        while self.takes('&') {
            let others = self.one()?;
            // Measured before it is made.
            if sets.len().saturating_mul(others.len()) > MOST {
                return Err(format!("the expression stands for more than {MOST} sets"));
            }
            let joined = |set: &BTreeSet<String>| {
                others.iter().map(|other| set.union(other).cloned().collect()).collect::<Sets>()
            };
            sets = sets.iter().flat_map(joined).collect();
        }
        Ok(sets)
    }

    fn one(&mut self) -> Result<Sets, String> {
        if self.takes('(') {
            self.depth += 1;
            if self.depth > DEPTH {
                return Err("its parentheses are nested too deeply".to_owned());
            }
            let sets = self.alternatives()?;
            self.depth -= 1;
            return if self.takes(')') { Ok(sets) } else { Err("a parenthesis is not closed".to_owned()) };
        }
        let is_reference = self.takes('+');
        self.peek();
        let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
        let end = self.rest.find(|c: char| !is_word(c)).unwrap_or(self.rest.len());
        let (word, rest): (&'a str, &'a str) = self.rest.split_at(end);
        self.rest = rest;
        match (word, is_reference) {
            ("", _) => Err("a model's name is missing".to_owned()),
            (_, true) => {
                let named = self.sets.named.get(word).cloned();
                named.ok_or_else(|| format!("no set `{word}` is defined above"))
            }
            (_, false) => self.sets.model(word),
        }
    }
}

fn few(sets: &Sets) -> Result<(), String> {
    if sets.len() > MOST { Err(format!("the expression stands for more than {MOST} sets")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(expressions: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let known: Vec<String> = ["gemma", "qwen-model", "c", "d.1"].map(str::to_owned).into();
        let mut sets = ModelSets::new(&known);
        sets.variable("g", "gemma");
        expressions.iter().try_for_each(|(name, text)| sets.add(name, text))?;
        Ok(sets.done().iter().map(|set| set.iter().cloned().collect::<Vec<_>>().join(" ")).collect())
    }

    #[test]
    fn an_expression_stands_for_sets() {
        for (text, expected) in [
            ("c", &["c"][..]),
            ("g & c", &["c gemma"]),
            ("g | c", &["gemma", "c"]),
            ("(g | qwen-model) & (c|d.1)", &["c gemma", "d.1 gemma", "c qwen-model", "d.1 qwen-model"]),
        ] {
            assert_eq!(read(&[("s", text)]).unwrap(), expected, "{text}");
        }
        assert_eq!(read(&[("s", "g|c"), ("t", "+s & d.1")]).unwrap(), ["gemma", "c", "d.1 gemma", "c d.1"]);
        for (text, why) in [
            ("", "a model's name is missing"),
            ("g &", "a model's name is missing"),
            ("x", "`x` is no model"),
            ("(g", "a parenthesis is not closed"),
            ("g)", "`)` follows the end of the expression"),
            ("+t", "no set `t` is defined above"),
            ("g c", "`c` follows the end of the expression"),
        ] {
            assert_eq!(read(&[("s", text)]).unwrap_err(), why, "{text}");
        }
        let deep = "(".repeat(100);
        assert!(read(&[("s", &deep)]).is_err());
        let wide = ["(g|c|d.1|qwen-model)"; 9].join("&");
        assert!(read(&[("s", &wide)]).unwrap_err().contains("more than 1000"));
    }
}
