//! `libplimsoll_abi.so`: plans and diagnoses for programs in other languages, by three C functions.
//!
//! A question and its answer are JSON. `plimsoll_plan` and `plimsoll_doctor` return a string that ends with
//! NUL, and `plimsoll_free` frees it. The answer is the document that `plimsoll plan --json` or
//! `plimsoll doctor --json` prints. If there is none, it is `{"error": {"text", "remedy"}}`.
//!
//! DECISION: a C ABI with JSON instead of an extension module. It needs nothing of CPython, so one library
//! serves every version, and other languages too. Reading the JSON takes less time than one plan.
#![deny(unsafe_code)]

mod answer;
pub mod exports;
