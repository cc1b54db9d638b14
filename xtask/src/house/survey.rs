//! Counts of `cargo xtask house` for each crate: lines, comments, functions, type names, cycles and tests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::cycles::{self, Cycle};
use super::lexer::CommentKind;
use super::prose;
use super::tree::{Crate, SourceFile, Tree};

/// A line of a file, with the words that a listing shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) file: PathBuf,
    pub(super) line: usize,
    pub(super) text: String,
}

/// A function of the product.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MeasuredFunction {
    pub(super) length: usize,
    pub(super) place: Place,
}

/// The comment lines of a product file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileDensity {
    pub(super) file: PathBuf,
    pub(super) code_lines: usize,
    pub(super) comment_lines: usize,
}

impl FileDensity {
    /// Comment lines that the file is short of four in a hundred.
    pub(super) fn missing(&self) -> usize {
        (self.code_lines * 4).div_ceil(100).saturating_sub(self.comment_lines)
    }
}

#[derive(Debug, Default)]
pub(super) struct CrateSurvey {
    pub(super) name: String,
    pub(super) files: usize,
    pub(super) product_lines: usize,
    /// Product lines on which a token stands.
    pub(super) code_lines: usize,
    /// Product lines that are a `//` comment and nothing else.
    pub(super) comment_lines: usize,
    /// Both of them for each file.
    pub(super) density: Vec<FileDensity>,
    pub(super) functions: Vec<MeasuredFunction>,
    pub(super) doc_comments: usize,
    pub(super) question_docs: Vec<Place>,
    pub(super) comment_words: usize,
    pub(super) people: Vec<Place>,
    /// Definitions of type names in the product.
    pub(super) types: Vec<(String, Place)>,
    pub(super) cycle: Vec<PathBuf>,
    /// The imports that close the cycle, and the file that each of them names.
    pub(super) cycle_edges: Vec<Place>,
}

#[derive(Debug)]
pub(super) struct Survey {
    pub(super) crates: Vec<CrateSurvey>,
    pub(super) tests: usize,
    pub(super) ignored: usize,
}

impl Survey {
    pub(super) fn of(tree: &Tree) -> Self {
        let sources = || tree.crates.iter().flat_map(|of| &of.files).chain(&tree.others);
        Self {
            crates: tree.crates.iter().map(survey_crate).collect(),
            tests: sources().map(|file| file.outline.tests).sum(),
            ignored: sources().map(|file| file.outline.ignored).sum(),
        }
    }

    /// All definitions of each product type name, with the names of the crates that define it.
    pub(super) fn type_names(&self) -> BTreeMap<&str, (Vec<&Place>, BTreeSet<&str>)> {
        let mut names: BTreeMap<&str, (Vec<&Place>, BTreeSet<&str>)> = BTreeMap::new();
        for of in &self.crates {
            for (name, place) in &of.types {
                let entry = names.entry(name).or_default();
                entry.0.push(place);
                entry.1.insert(&of.name);
            }
        }
        names
    }
}

fn survey_crate(of: &Crate) -> CrateSurvey {
    let mut survey = CrateSurvey {
        name: of.name.clone(),
        files: of.files.iter().filter(|file| !file.is_test).count(),
        ..CrateSurvey::default()
    };
    for file in &of.files {
        survey.add_lines(file);
        survey.add_items(file);
        survey.add_prose(file);
    }
    survey.add_cycle(of, &cycles::largest(of));
    survey
}

impl CrateSurvey {
    fn add_lines(&mut self, file: &SourceFile) {
        self.product_lines += file.product_lines();
        let code = (1..=file.lines).filter(|line| file.has_code[*line] && file.is_product(*line));
        let comments = file.comments.iter();
        let comments = comments.filter(|found| {
            found.kind == CommentKind::Plain && found.is_first && file.is_product(found.line)
        });
        let density = FileDensity {
            file: file.path.clone(),
            code_lines: code.count(),
            comment_lines: comments.count(),
        };
        self.code_lines += density.code_lines;
        self.comment_lines += density.comment_lines;
        if !file.is_test {
            self.density.push(density);
        }
    }

    fn add_items(&mut self, file: &SourceFile) {
        if file.is_test {
            return;
        }
        let functions = file.outline.functions.iter().filter(|function| !function.is_test);
        self.functions.extend(functions.map(|function| MeasuredFunction {
            length: function.length,
            place: place(file, function.line, format!("fn {}: {} lines", function.name, function.length)),
        }));
        let types = file.outline.types.iter().filter(|name| !name.is_test);
        self.types.extend(types.map(|found| (found.name.clone(), place(file, found.line, String::new()))));
    }

    fn add_prose(&mut self, file: &SourceFile) {
        let docs = prose::doc_comments(&file.comments);
        self.doc_comments += docs.len();
        let openers = docs.into_iter().filter(prose::DocComment::opens_with_a_question);
        self.question_docs.extend(openers.map(|doc| place(file, doc.line, doc.first_line)));
        for comment in &file.comments {
            self.comment_words += prose::words(&comment.text).count();
            let people = prose::words(&comment.text).filter(|word| prose::is_for_people(word));
            self.people.extend(people.map(|word| {
                let text = format!("{word}: {}", comment.text.trim());
                place(file, comment.line, text)
            }));
        }
    }

    fn add_cycle(&mut self, of: &Crate, cycle: &Cycle) {
        let path = |file: usize| of.files[file].path.clone();
        self.cycle = cycle.files.iter().map(|file| path(*file)).collect();
        self.cycle_edges = cycle
            .edges
            .iter()
            .map(|(from, to, line)| {
                place(&of.files[*from], *line, format!("imports {}", path(*to).display()))
            })
            .collect();
    }
}

fn place(file: &SourceFile, line: usize, text: String) -> Place {
    Place { file: file.path.clone(), line, text }
}
