//! Prints the sizes of CUDA contexts that `plimsoll measure calibrate` has measured.

use std::fmt::Write;

use plimsoll_base::Bytes;

use super::Calibration;

pub(super) fn text(calibration: &Calibration) -> String {
    let mut text = String::new();
    for row in &calibration.contexts {
        let cublas = row.cublas.map_or("the memory of cuBLAS was not measured".to_owned(), |bytes: Bytes| {
            format!("the first use of cuBLAS adds {bytes}")
        });
        let opened = row.opened.map_or(String::new(), |bytes| format!(" ({bytes} right after its creation)"));
        // The form `llama.cpp@10605` is the one that `plan --engine` reads.
        let build = row.build.map_or(String::new(), |build| format!("@{build}"));
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{}: a context takes {}{opened}, {cublas} ({}{build}, driver {})",
            row.card,
            row.context,
            row.engine.name(),
            row.driver
        );
    }
    for failed in &calibration.failures {
        let _ = writeln!(text, "{}: not measured: {}", failed.card, failed.why);
    }
    if let Some(path) = &calibration.written {
        let _ = writeln!(text, "saved in {}, for `plimsoll plan` and `plimsoll serve`", path.display());
    }
    text
}
