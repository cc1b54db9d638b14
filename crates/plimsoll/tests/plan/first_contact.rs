//! Tests of the commands that a new user tries first, by the complete output of each.
//!
//! `first_contact.txt` holds correct commands, `mistakes.txt` wrong ones, and `refusals.txt` those that ask
//! for the impossible. Each is followed by its output.
//!
//! `UPDATE_DOCUMENTS=1` writes today's output into the files.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{plimsoll, specimen, text};

/// The commands of the file, each with its answer, run in a folder that holds the models.
fn reported(file: &str, folder: &Path) -> String {
    let commands = file.lines().filter_map(|line| line.strip_prefix("$ "));
    let answers = commands.map(|command| {
        let output = Command::new("sh")
            .args(["-c", &format!("{command} 2>&1; echo \"[exit $?]\"")])
            .current_dir(folder)
            .env("PATH", path())
            .env("HOME", folder)
            .env("PLIMSOLL_NVML", "")
            .env("RUST_LOG", "error")
            // Nothing listens there, on any machine.
            .env("HF_ENDPOINT", "http://127.0.0.1:9")
            .output()
            .unwrap();
        // The folder is the home of this user.
        format!("$ {command}\n{}\n", text(&output.stdout).replace(&folder.display().to_string(), "~"))
    });
    answers.collect()
}

fn path() -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_plimsoll")).parent().unwrap();
    format!("{}:{}", program.display(), std::env::var("PATH").unwrap())
}

/// The answers of a file of commands, which are as they stand there.
fn as_it_stands(name: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    for shape in ["l8", "q30"] {
        specimen(shape, folder.path());
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plan").join(name);
    let expected = std::fs::read_to_string(&file).unwrap();
    let today = reported(&expected, folder.path());
    assert!(today.matches("\n[exit ").count() > 10, "{today}");
    if std::env::var_os("UPDATE_DOCUMENTS").is_some() {
        std::fs::write(file, &today).unwrap();
    } else {
        assert_eq!(today, expected);
    }
    today
}

#[test]
fn first_commands_of_a_user_print_the_recorded_output() {
    let today = as_it_stands("first_contact.txt");
    let lines = today.lines().filter(|line| !is_command_or_error(line));
    let widest = lines.max_by_key(|line| line.chars().count()).unwrap();
    assert!(widest.chars().count() <= 80, "{widest}");
}

/// Every command of the file is a mistake: one voice says so on stderr, and the status is that of bad input.
#[test]
fn mistakes_are_answered_as_they_stand_in_the_file() {
    let today = as_it_stands("mistakes.txt");
    for answer in today.split("\n\n$ ") {
        assert!(answer.contains("\nplimsoll: "), "{answer}");
        assert!(answer.contains("\n[exit 2]"), "{answer}");
    }
}

/// Every command of the file is right, and what it asks for cannot be had.
#[test]
fn refusals_are_answered_as_they_stand_in_the_file() {
    let today = as_it_stands("refusals.txt");
    assert_eq!(today.matches("\n[exit 1]").count(), today.matches("\n[exit ").count(), "{today}");
}

/// Commands are the reader's own, and errors are for a terminal to wrap.
fn is_command_or_error(line: &str) -> bool {
    ["$ ", "error: ", "plimsoll: ", "hint: --fit prints", "hint: let "]
        .iter()
        .any(|start| line.starts_with(start))
}

#[test]
fn a_machine_without_a_card_is_reported_first_in_text_and_json() {
    let folder = tempfile::tempdir().unwrap();
    let model = specimen("tiny", folder.path());
    let run = |more: &[&str]| {
        let mut command = assert_cmd::Command::cargo_bin("plimsoll").unwrap();
        command.env("PLIMSOLL_NVML", "").arg("plan").args(more).arg(&model);
        command.output().unwrap()
    };
    let stated = text(&run(&[]).stdout);
    let second = stated.lines().nth(1).unwrap();
    assert!(second.starts_with("warning: no NVIDIA card is visible"), "{stated}");
    let plan: Value = serde_json::from_slice(&run(&["--json"]).stdout).unwrap();
    assert_eq!(plan["warnings"][0]["code"], "no_card_seen", "{plan:#}");
}

/// A warning stands above the bars of a picture and above the verdict of a page.
#[test]
fn pictures_and_pages_lead_with_the_warnings() {
    let folder = tempfile::tempdir().unwrap();
    let model = specimen("l8", folder.path());
    let file = |name: &str| folder.path().join(name).display().to_string();
    let output = plimsoll(&[
        "plan",
        "--card",
        "3060",
        "--svg",
        &file("a.svg"),
        "--html",
        &file("a.html"),
        "--",
        "-m",
        model.to_str().unwrap(),
        "-c",
        "8192",
        "-ctk",
        "q8_0",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for (name, verdict) in [("a.svg", "fits, "), ("a.html", "class=\"verdict")] {
        let drawn = std::fs::read_to_string(file(name)).unwrap();
        let warning = drawn.find("the engine will disable flash").unwrap();
        assert!(warning < drawn.find(verdict).unwrap(), "{name}");
    }
}

/// A plan of 153 % of a card is drawn to its end, and the load line stands where the card ends.
#[test]
fn a_picture_is_scaled_to_what_is_needed() {
    let folder = tempfile::tempdir().unwrap();
    let model = specimen("q30", folder.path());
    let picture = folder.path().join("a.svg");
    let card = "name=RTX3090,total=24GiB,cc=8.6";
    plimsoll(&[
        "plan",
        "--card",
        card,
        "--svg",
        picture.to_str().unwrap(),
        "--",
        "-m",
        model.to_str().unwrap(),
        "-c",
        "65536",
    ]);
    let drawn = std::fs::read_to_string(picture).unwrap();
    let number = |line: &str, name: &str| {
        let from = line.split_once(&format!("{name}=\"")).unwrap().1;
        from.split_once("%\"").unwrap().0.parse::<f64>().unwrap()
    };
    let pool = drawn
        .split("<rect")
        .find(|rect| rect.contains("class=\"pool\"") && rect.contains("data-term"))
        .unwrap();
    let end = number(pool, " x") + number(pool, " width");
    assert!((99.9..100.1).contains(&end), "the bar ends at {end}");
    let at = number(drawn.split_once("class=\"edge\"").unwrap().1, "x1");
    // 24576 of 37572 MiB.
    assert!((65.3..65.55).contains(&at), "the load line is at {at}");
    assert!(drawn.contains("card 24576 MiB") && drawn.contains("12996 MiB too much"));
}
