//! Build script of the fake driver: it sets the library's name (soname) for which programs linked with
//! `-lcuda` search.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // As in NVIDIA's library, what it says of itself is never another object's symbol.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
}
