//! Adds the completion of model names to the shell completion scripts, for the subcommands that take a model.

use clap_complete::Shell;

/// Verbs that take a model of the running server.
const VERBS: [&str; 5] = ["load", "unload", "pin", "unpin", "logs"];

const BASH: &str = r#"
_plimsoll_with_models() {
    _plimsoll "$@"
    case "${COMP_WORDS[1]}" in
        VERBS)
            if [[ $2 != -* && $3 != --* ]]; then
                local name names=()
                while IFS= read -r name; do
                    [[ $name == "$2"* ]] && names+=("$(printf '%q' "$name")")
                done < <(plimsoll model-names 2>/dev/null)
                if ((${#names[@]})); then COMPREPLY=("${names[@]}"); fi
            fi
            ;;
    esac
}
"#;

const ZSH: &str = r#"(( $+functions[_plimsoll_models] )) ||
_plimsoll_models() {
    local -a names
    names=("${(@f)$(plimsoll model-names 2>/dev/null)}")
    compadd -a names
}

"#;

/// The script with a function that asks for the names.
pub(super) fn with_model_names(shell: Shell, script: &str) -> String {
    match shell {
        Shell::Bash => {
            let (before, after) = script.rsplit_once("\nif [[").unwrap_or((script, ""));
            let own = BASH.replace("VERBS", &VERBS.join("|"));
            format!("{before}{own}\nif [[{}", after.replace("-F _plimsoll ", "-F _plimsoll_with_models "))
        }
        Shell::Zsh => {
            let named = script
                .replace("Name or alias of the model:_default", "Name or alias of the model:_plimsoll_models")
                .replace("all models if omitted:_default", "all models if omitted:_plimsoll_models");
            named.replacen("if [ \"$funcstack[1]\"", &format!("{ZSH}if [ \"$funcstack[1]\""), 1)
        }
        Shell::Fish => {
            let line = |verb: &str| {
                format!(
                    "complete -c plimsoll -n \"__fish_plimsoll_using_subcommand {verb}\" -f -a \
                    \"(plimsoll model-names 2>/dev/null)\"\n"
                )
            };
            format!("{script}{}", VERBS.map(line).concat())
        }
        _ => script.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn script(shell: Shell) -> String {
        String::from_utf8(super::super::script(shell)).unwrap()
    }

    #[test]
    fn bash_completes_names_of_models_and_options_still() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("plimsoll.bash");
        std::fs::write(&file, script(Shell::Bash)).unwrap();
        let completed = |verb: &str, word: &str| {
            let text = format!(
                "plimsoll() {{ [[ $1 == model-names ]] && printf 'qwen3 4b\\nqwq\\nllama\\n'; }}\n. {}\n\
                 COMP_WORDS=(plimsoll {verb} '{word}'); COMP_CWORD=2\n\
                 _plimsoll_with_models plimsoll '{word}' {verb}; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
                file.display()
            );
            let output = Command::new("bash").args(["-c", &text]).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        for verb in VERBS {
            assert_eq!(completed(verb, "qw"), "qwen3\\ 4b\nqwq\n", "{verb}");
            assert!(completed(verb, "--u").contains("--url"), "{verb}");
        }
        assert!(!completed("serve", "qw").contains("qwq"));
    }

    #[test]
    fn each_script_asks_for_names_where_a_verb_takes_one() {
        let (zsh, fish) = (script(Shell::Zsh), script(Shell::Fish));
        assert_eq!(zsh.matches(":_plimsoll_models'").count(), VERBS.len());
        assert!(zsh.find("_plimsoll_models()") < zsh.find("if [ \"$funcstack[1]\""), "{zsh}");
        assert_eq!(fish.matches("(plimsoll model-names").count(), VERBS.len());
    }
}
