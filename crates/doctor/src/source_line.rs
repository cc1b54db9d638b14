//! Lines of source and configuration files, told from lines of logs by their syntax.
//!
//! The phrases in such a line belong to a program that was never run here.

/// First words of declarations: Rust, C, Python, JavaScript, Go. No sentence begins with them in small letters.
const DECLARES: [&str; 37] = [
    "import ",
    "def ",
    "class ",
    "raise ",
    "pub ",
    "pub(",
    "fn ",
    "impl ",
    "impl<",
    "mod ",
    "#include",
    "#define",
    "#if",
    "#end",
    "#else",
    "#undef",
    "#[",
    "#!",
    "export ",
    "extern ",
    "async ",
    "elif ",
    "except ",
    "try:",
    "else:",
    "yield ",
    "assert ",
    "typedef ",
    "static ",
    "const ",
    "struct ",
    "enum ",
    "union ",
    "namespace ",
    "template<",
    "func ",
    "interface ",
];
/// First words of statements, which are words of sentences too.
const STATES: [&str; 14] = [
    "use ",
    "let ",
    "type ",
    "trait ",
    "match ",
    "if ",
    "for ",
    "while ",
    "return",
    "with ",
    "from ",
    "function ",
    "var ",
    "case ",
];
/// Beginnings of comments.
const COMMENTS: [&str; 6] = ["//", "/*", "* ", "*/", "# ", "\"\"\""];
/// Ends of statements and of lists that go on.
const ENDS: [&str; 9] = [";", "{", "}", "(", "[", "},", "),", "],", "\\"];

/// True for a line with the syntax of a source or configuration file.
pub(crate) fn is_source_line(line: &str) -> bool {
    let text = line.trim();
    // A logger's line may be an object of JSON, and a header in brackets may begin with a time.
    let is_object = text.starts_with("{\"") && text.ends_with('}');
    if text.is_empty() || is_object {
        return false;
    }
    let is_comment = COMMENTS.iter().any(|mark| text.starts_with(mark)) || text == "#" || text == "*";
    is_comment
        || text.starts_with(['}', ')', ']', '@'])
        || ENDS.iter().any(|mark| text.ends_with(mark))
        || DECLARES.iter().any(|word| text.starts_with(word))
        || STATES.iter().any(|word| text.starts_with(word)) && is_code_end(text)
        || text.starts_with('<') && text.ends_with('>')
        || is_call(text)
        || is_section(text)
        || is_setting(text)
        || is_quoted(text)
}

/// A statement ends in a mark, in a name, or is an import.
fn is_code_end(text: &str) -> bool {
    let is_import = text.starts_with("from ") && text.contains(" import ");
    is_import
        || text.starts_with("return ") && !text.contains(" = ")
        || text.ends_with([')', ':', '>', '"', ',', '='])
}

/// `self.check(a, b)`, `x = call(y)`: a name, and its arguments to the end of the line.
fn is_call(text: &str) -> bool {
    let text = text.split_once(" = ").map_or(text, |(_, value)| value);
    let Some((name, _)) = text.split_once('(').filter(|_| text.ends_with(')')) else { return false };
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b':' | b'!');
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.bytes().all(fits)
}

/// `[package]`, `[[bin]]`, `[profile.release]`.
fn is_section(text: &str) -> bool {
    let name = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    name.is_some_and(|name| {
        let fits = |byte: u8| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'[' | b']' | b'"')
        };
        !name.is_empty() && name.bytes().all(fits) && name.bytes().any(|byte| byte.is_ascii_alphabetic())
    })
}

/// `name = "value"`, `name = [1, 2]`, `name = true`.
fn is_setting(text: &str) -> bool {
    let Some((name, value)) = text.split_once('=') else { return false };
    let (name, value) = (name.trim(), value.trim());
    let is_name = !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'"'));
    let is_value = value.starts_with(['"', '\'', '[', '{']) || value == "true" || value == "false";
    is_name && is_value
}

/// A string in a list, or a pair of JSON: `"text",`, `"name": 1,`.
fn is_quoted(text: &str) -> bool {
    let is_string = text.starts_with('"') && text.ends_with(['"', ',', ':']);
    is_string || text.starts_with('"') && text.contains("\": ")
}

/// True for a line of YAML whose name is in small letters or a variable's: `image: x`, `- name: y`, `services:`.
pub(crate) fn is_yaml_line(line: &str) -> bool {
    let text = line.trim();
    let text = text.strip_prefix("- ").unwrap_or(text);
    // The lines of a command in a block.
    if text.starts_with(['#', '-', '$', '"', '\'']) || text.ends_with('\\') {
        return true;
    }
    let name = text.split_once(": ").map_or_else(|| text.strip_suffix(':'), |(name, _)| Some(name));
    let fits = |name: &str| {
        name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
    };
    let is_variable = |name: &str| name.contains('_') && !name.bytes().any(|byte| byte.is_ascii_lowercase());
    let is_name = name.is_some_and(|name| {
        fits(name) && (name.starts_with(|c: char| c.is_ascii_lowercase()) || is_variable(name))
    });
    is_name || line.trim_start().starts_with("- ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_files_are_told_from_lines_of_logs() {
        for line in [
            "use std::fs;",
            "    fn read(text: &str) -> bool {",
            "/// Out of memory.",
            "    }",
            "    return self.model(x)",
            "#include <cuda.h>",
            "[profile.release]",
            "name = \"out of memory\"",
            "    \"CUDA error: out of memory\",",
            "  \"cause\": \"leak\",",
            "# a comment",
            "from a import b",
            "self.check(a, b)",
            "x = torch.zeros(size)",
            "<div>",
        ] {
            assert!(is_source_line(line), "{line}");
        }
        for line in [
            "",
            "CUDA error: out of memory",
            "  current device: 0, in function alloc at ggml-cuda.cu:233",
            "[2026-04-03 12:00:01] out of memory",
            "[12/40] Building",
            "llama_context: n_ctx = 131072",
            "n_ctx = 2048",
            "{\"level\":\"error\",\"message\":\"out of memory\"}",
            "srv  update_slots: all slots are idle",
            "for the first request it works",
            "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB",
            "  File \"a.py\", line 9, in forward",
            "time = 12 ms (3 t/s)",
            "state = failed (out of memory)",
            "with a long context it fails",
            "return code = -9",
        ] {
            assert!(!is_source_line(line), "{line}");
        }
        assert!(is_yaml_line("      CUDA_VISIBLE_DEVICES: 0"));
        assert!(is_yaml_line("  image: x") && is_yaml_line("services:") && is_yaml_line("  - name: y"));
        for line in ["Error: out of memory", "MemTotal:  1 kB", "srv  load_model: x", "current device: 0"] {
            assert!(!is_yaml_line(line), "{line}");
        }
    }
}
