//! Parses the Markdown pages of the documentation for their tests: `console` blocks, configuration files and
//! links.

use std::path::Path;

/// Stands for a line that an update took away, so that the numbers of later lines stay.
const REMOVED: &str = "\0";

/// A document, line by line.
pub(crate) struct Page {
    pub(crate) lines: Vec<String>,
}

/// A `console` block.
#[derive(Clone)]
pub(crate) struct Block {
    /// The line after the opening fence, and the closing fence.
    begin: usize,
    end: usize,
    note: String,
    pub(crate) commands: Vec<String>,
}

impl Block {
    pub(crate) fn serves(&self) -> bool {
        self.note == "serve"
    }

    pub(crate) fn takes_any_output(&self) -> bool {
        self.note == "any output"
    }
}

impl Page {
    pub(crate) fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        Self { lines: text.lines().map(str::to_owned).collect() }
    }

    pub(crate) fn write(&self, path: &Path) {
        let kept = self.lines.iter().filter(|line| *line != REMOVED);
        let text: String = kept.map(|line| format!("{line}\n")).collect();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn blocks(&self) -> Vec<Block> {
        self.fenced("```console").into_iter().map(|(begin, end)| self.block(begin, end)).collect()
    }

    fn block(&self, begin: usize, end: usize) -> Block {
        let note = begin.checked_sub(2).map(|at| self.lines[at].as_str());
        let note = note.and_then(|line| line.strip_prefix("<!-- test: ")?.strip_suffix(" -->"));
        let commands = self.lines[begin..end].iter().filter_map(|line| line.strip_prefix("$ "));
        Block {
            begin,
            end,
            note: note.unwrap_or_default().to_owned(),
            commands: commands.map(str::to_owned).collect(),
        }
    }

    /// Ranges of lines between fences that open with `fence`.
    fn fenced(&self, fence: &str) -> Vec<(usize, usize)> {
        let opening = self.lines.iter().enumerate().filter(|(_, line)| *line == fence);
        opening
            .map(|(at, _)| {
                let length =
                    self.lines[at + 1..].iter().position(|line| line == "```").expect("a closing fence");
                (at + 1, at + 1 + length)
            })
            .collect()
    }

    /// The first file of the page in this format.
    pub(crate) fn file(&self, format: &str) -> Option<String> {
        let (begin, end) = *self.fenced(&format!("```{format}")).first()?;
        Some(self.lines[begin..end].join("\n"))
    }

    /// Compares a block with what its commands printed, and puts that into the page.
    pub(crate) fn compare(&mut self, block: &Block, printed: &[(String, String)]) -> Option<String> {
        let mut lines = Vec::new();
        for (command, output) in printed {
            lines.push(format!("$ {command}"));
            lines.extend(output.trim_end().lines().map(|line| line.trim_end().to_owned()));
        }
        let is_same = self.lines[block.begin..block.end] == lines[..];
        if std::env::var_os("UPDATE_DOCUMENTS").is_some() {
            self.lines[block.begin..block.end].fill(REMOVED.to_owned());
            self.lines[block.begin] = lines.join("\n");
            return None;
        }
        let documented = self.lines[block.begin..block.end].join("\n");
        (!is_same).then(|| format!("documented:\n{documented}\nprinted:\n{}\n", lines.join("\n")))
    }

    /// Names by which links reach the page's headings.
    pub(crate) fn places(&self) -> impl Iterator<Item = String> {
        let headings = self.lines.iter().filter(|line| line.starts_with('#'));
        headings.map(|line| {
            let words = line.trim_start_matches('#').trim().to_lowercase();
            let kept = words.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
            kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
        })
    }

    pub(crate) fn links(&self) -> Vec<String> {
        let text = self.lines.join("\n");
        let ends = text.match_indices("](").filter_map(|(at, _)| {
            let link = &text[at + 2..];
            Some(link[..link.find(')')?].to_owned())
        });
        ends.collect()
    }
}
