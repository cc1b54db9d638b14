//! Tells lines of source and configuration files from log lines, by their syntax.
//!
//! The phrases in such a line belong to a program that did not run. `formats/shapes.tsv` has the forms.

use super::formats::fits;

/// True for a line with the syntax of a source or configuration file.
pub(crate) fn is_source_line(line: &str) -> bool {
    let text = line.trim();
    // A logger's line may be an object of JSON.
    let is_object = text.starts_with("{\"") && text.ends_with('}');
    !is_object && fits("source", text)
}

/// True for a line of YAML whose name is in small letters or a variable's: `image: x`, `- name: y`,
/// `services:`.
pub(crate) fn is_yaml_line(line: &str) -> bool {
    fits("yaml", line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_files_are_distinguished_from_lines_of_logs() {
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
