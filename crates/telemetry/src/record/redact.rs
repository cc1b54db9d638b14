//! Redaction of memory recordings: names, paths and UUIDs become placeholders, and equal names get equal
//! placeholders.

use std::collections::BTreeMap;

use super::figure::Group;
use super::summary::Summary;

/// Names of programs that reveal nothing about their user.
const KNOWN: &[&str] = &[
    "llama-server",
    "llama-cli",
    "llama-bench",
    "ollama",
    "python",
    "python3",
    "vllm",
    "plimsoll",
    "bash",
    "sh",
    "Xorg",
    "gnome-shell",
    "systemd",
    "kworker",
];
/// Shorter names would be found in every word.
const LEAST_NAME: usize = 3;
const MOST_NAMES: usize = 256;
/// Characters that end a path in running text.
const ENDS_PATH: &[char] =
    &[' ', '"', '\'', ',', ';', ':', '(', ')', '[', ']', '<', '>', '=', '|', '\n', '\t'];
const UUID_LENGTH: usize = 36;

/// Takes the names out of a summary.
pub fn redact(summary: &mut Summary) {
    let mut redaction = Redaction::default();
    redaction.learn(summary);
    redaction.apply(summary);
}

/// The replacements made so far.
#[derive(Clone, Debug, Default)]
struct Redaction {
    /// Longest first, so that no name is cut in two by a shorter one.
    names: Vec<(String, String)>,
    paths: BTreeMap<String, String>,
    uuids: BTreeMap<String, String>,
}

impl Redaction {
    fn learn(&mut self, summary: &Summary) {
        // Before all others, so that a process of the same name gets the host's placeholder.
        self.name(&summary.about.host, "host");
        let processes = summary
            .figures
            .iter()
            .filter(|told| matches!(told.figure.group, Group::Process | Group::Guard))
            .filter_map(|told| told.figure.subject.split_once(' '));
        let mut names: Vec<&str> = processes.map(|(_, name)| name).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            self.name(name, "process");
        }
        for word in summary.about.command.iter().filter(|word| is_name(word)) {
            self.name(word, "word");
        }
        // After all names are known: applying them in order would split longer ones.
        self.names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    }

    fn name(&mut self, name: &str, kind: &str) {
        let is_ours = KNOWN.contains(&name);
        let is_there = self.names.iter().any(|(other, _)| other == name);
        let is_room = self.names.len() < MOST_NAMES;
        // Names of one or two letters occur inside unrelated words of a log.
        if name.len() >= LEAST_NAME && is_room && !is_ours && !is_there {
            let number = self.names.iter().filter(|(_, word)| word.starts_with(kind)).count() + 1;
            self.names.push((name.to_owned(), format!("{kind}-{number}")));
        }
    }

    fn apply(&mut self, summary: &mut Summary) {
        let about = &mut summary.about;
        let texts = std::iter::once(&mut about.host)
            .chain(&mut about.command)
            .chain(&mut about.notes)
            .chain(about.cards.iter_mut().map(|card| &mut card.uuid))
            .chain(summary.figures.iter_mut().map(|told| &mut told.figure.subject))
            .chain(summary.events.iter_mut().map(|event| &mut event.text))
            .chain(&mut summary.end);
        for text in texts {
            *text = self.text(text);
        }
    }

    /// One text without names.
    fn text(&mut self, text: &str) -> String {
        // UUIDs first: they contain no slash, but a path may contain one of them.
        let text = self.without_uuids(text);
        let text = self.without_paths(&text);
        self.names.iter().fold(text, |text, (name, word)| replaced(&text, name, word))
    }

    fn without_uuids(&mut self, text: &str) -> String {
        let mut clean = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = uuid(rest) {
            let (before, from) = rest.split_at(at);
            let (uuid, after) = from.split_at(UUID_LENGTH);
            let number = self.uuids.len() + 1;
            let word =
                self.uuids.entry(uuid.to_ascii_lowercase()).or_insert_with(|| format!("uuid-{number}"));
            clean.push_str(before);
            clean.push_str(word);
            rest = after;
        }
        clean + rest
    }

    /// A path begins with a slash that follows no letter, and has more than the slash.
    fn without_paths(&mut self, text: &str) -> String {
        let mut clean = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('/') {
            let (before, from) = rest.split_at(at);
            let end = from.find(ENDS_PATH).unwrap_or(from.len());
            let (path, after) = from.split_at(end);
            clean.push_str(before);
            let follows = clean
                .chars()
                .next_back()
                .is_some_and(|c| c.is_alphanumeric() || c == '/' || c == '.' || c == '~');
            // `3/4` and `MiB/s` are no paths; `~/x` and `./x` are.
            let is_path = path.len() > 1 && (!follows || before.ends_with(['.', '~']));
            clean.push_str(&if is_path { self.path(path) } else { path.to_owned() });
            rest = after;
        }
        clean + rest
    }

    fn path(&mut self, path: &str) -> String {
        // Names of kernel files and devices are the same on every machine.
        if ["/proc", "/sys", "/dev"].iter().any(|root| path.starts_with(root)) {
            return path.to_owned();
        }
        // The ending tells a model from a script, which a diagnosis needs.
        let ending = path.rsplit_once('.').map_or("", |(_, ending)| ending);
        let is_ending = (1..=5).contains(&ending.len()) && ending.chars().all(|c| c.is_ascii_alphanumeric());
        let number = self.paths.len() + 1;
        let word = self.paths.entry(path.to_owned()).or_insert_with(|| match is_ending {
            true => format!("path-{number}.{ending}"),
            false => format!("path-{number}"),
        });
        word.clone()
    }
}

/// True for a word of a command line that may be a private name: no flag, no number, no path (paths are
/// replaced anyway).
fn is_name(word: &str) -> bool {
    let is_number = word.chars().all(|c| c.is_ascii_digit() || ".kKmMgG".contains(c));
    !word.starts_with('-') && !word.contains('/') && !is_number && word.len() > LEAST_NAME
}

/// Offset of the first UUID: groups of 8, 4, 4, 4 and 12 hexadecimal digits.
fn uuid(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    bytes.windows(UUID_LENGTH).position(|window| {
        window.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
    })
}

/// Replaces a name where it is a separate word.
fn replaced(text: &str, name: &str, word: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(name) {
        let (before, from) = rest.split_at(at);
        let after = &from[name.len()..];
        clean.push_str(before);
        // Part of a longer word is another word: `ann` must not change `annual`.
        let joins = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        let stands_alone = !joins(clean.chars().next_back()) && !joins(after.chars().next());
        clean.push_str(if stands_alone { word } else { name });
        rest = after;
    }
    clean + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_path_and_uuid_become_the_same_word() {
        let mut redaction = Redaction::default();
        let card = "GPU-1b4e28ba-2fa1-11d2-883f-0016d3cca427";
        let text =
            format!("load /home/ann/secret.gguf on {card}; /home/ann/secret.gguf again, \"/srv/x\" {card}");
        assert_eq!(
            redaction.text(&text),
            "load path-1.gguf on GPU-uuid-1; path-1.gguf again, \"path-2\" GPU-uuid-1"
        );
        assert_eq!(
            redaction.text("~/ann.txt ./a/b -m=/home/ann/secret.gguf"),
            "~path-3.txt .path-4 -m=path-1.gguf"
        );
    }

    #[test]
    fn numbers_dates_and_the_kernels_own_paths_stay() {
        let text = "3/4 of 12 MiB, 5 MiB/s, read /proc/meminfo and /dev/nvidia0: I/O error";
        assert_eq!(Redaction::default().text(text), text);
    }

    #[test]
    fn a_name_is_replaced_as_a_word_only() {
        let mut redaction = Redaction::default();
        redaction.name("ann", "host");
        redaction.name("python3", "process");
        assert_eq!(redaction.text("ann's annual python3 on ann"), "host-1's annual python3 on host-1");
    }
}
