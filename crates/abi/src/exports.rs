//! Exports the C functions, and converts between their pointers and Rust's types.
//!
//! ```c
//! char *plimsoll_plan(const unsigned char *question, size_t length);
//! char *plimsoll_doctor(const unsigned char *question, size_t length);
//! void plimsoll_free(char *answer);
//! ```
#![allow(unsafe_code, reason = "the C ABI begins here")]

use std::ffi::{CString, c_char};
use std::slice;

use super::answer::{AnswerError, answered, doctor, plan};

/// Plans a model.
///
/// # Safety
/// `question` is valid for reads of `length` bytes, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_plan(question: *const u8, length: usize) -> *mut c_char {
    // SAFETY: the caller's contract is the same.
    unsafe { call(question, length, plan) }
}

/// Diagnoses a log.
///
/// # Safety
/// `question` is valid for reads of `length` bytes, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_doctor(question: *const u8, length: usize) -> *mut c_char {
    // SAFETY: the caller's contract is the same.
    unsafe { call(question, length, doctor) }
}

/// Frees an answer.
///
/// # Safety
/// `answer` was returned by one of the two functions above and has not been freed, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_free(answer: *mut c_char) {
    if !answer.is_null() {
        // SAFETY: it comes from `CString::into_raw` in `call`, and nobody else frees it.
        drop(unsafe { CString::from_raw(answer) });
    }
}

/// The answer as a string of C, which its caller frees.
///
/// # Safety
/// `question` is valid for reads of `length` bytes, or null.
unsafe fn call(
    question: *const u8,
    length: usize,
    answer: fn(&[u8]) -> Result<String, AnswerError>,
) -> *mut c_char {
    let question = if question.is_null() {
        &[]
    } else {
        // SAFETY: not null, and valid by this function's contract.
        unsafe { slice::from_raw_parts(question, length) }
    };
    // JSON has no NUL: strings in it have it escaped.
    CString::new(answered(question, answer)).unwrap_or_default().into_raw()
}
