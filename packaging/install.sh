#!/bin/sh
# Installation of Plimsoll's archive below a prefix: checked, unpacked, recorded, and undone by --uninstall.
#
# Nothing is unpacked before SHA256SUMS has a valid signature and the archive has its sum. The last line starts
# the script, so that a download of it that breaks off runs nothing.
set -eu

# `cargo xtask release` writes the words between @.
FROM='@FROM@'
KEYS='@KEYS@'
GLIBC='@GLIBC@'

usage() {
    cat <<'USAGE'
usage: install.sh [--from URL|FOLDER] [--prefix FOLDER] [--key KEY] [--checksum-only]
       install.sh --uninstall [--prefix FOLDER]

Installs the program, its libraries, man pages and completions; no root is needed.

  --from URL|FOLDER  where SHA256SUMS, SHA256SUMS.minisig and the archive are
  --prefix FOLDER    what to install below, by default ~/.local
  --key KEY          public key of minisign that must have signed SHA256SUMS
  --checksum-only    check no signature: finds a broken download, not a forged one
  --uninstall        remove what was installed, engines, caches and measurements; configuration stays
USAGE
}

die() {
    printf 'install.sh: %s\n' "$1" >&2
    exit 1
}

has() {
    command -v "$1" > /dev/null 2>&1
}

# The file of this name in the source, as a copy that nobody else can change.
fetch() {
    case $FROM in
        *://*)
            if has curl; then
                curl -fsSL -o "$work/$1" "$FROM/$1"
            elif has wget; then
                wget -q -O "$work/$1" "$FROM/$1"
            else
                die 'neither curl nor wget is here; install one, or download the files and give --from FOLDER'
            fi ;;
        *) cp "$FROM/$1" "$work/$1" ;;
    esac || die "cannot get $1 from $FROM"
}

# Standard input as bytes.
plain() {
    openssl base64 -d -A
}

# openssl in place of minisign. A public key is "Ed", eight bytes of its number and 32 of the key; a signature is
# "Ed", the same number and 64 bytes. The first twelve bytes written here say "Ed25519" in DER.
openssl_verifies() {
    printf %s "$1" | plain > "$work/key" && sed -n 2p "$work/SHA256SUMS.minisig" | plain > "$work/signature" || return 1
    [ "$(wc -c < "$work/key")" -eq 42 ] && [ "$(wc -c < "$work/signature")" -eq 74 ] || return 1
    [ "$(head -c 10 "$work/key" | od -A n -t x1)" = "$(head -c 10 "$work/signature" | od -A n -t x1)" ] || return 1
    { printf '\060\052\060\005\006\003\053\145\160\003\041\000' && tail -c 32 "$work/key"; } > "$work/key.der"
    tail -c 64 "$work/signature" > "$work/raw"
    openssl pkeyutl -verify -pubin -keyform DER -inkey "$work/key.der" -rawin -in "$work/SHA256SUMS" -sigfile "$work/raw"
}

verify() {
    [ -n "$KEYS" ] || die 'this copy of install.sh has no public key; give --key KEY, or --checksum-only'
    fetch SHA256SUMS.minisig
    if has minisign; then
        tool=minisign
    elif has openssl && openssl pkeyutl -help 2>&1 | grep -q -e -rawin; then
        tool=openssl
    else
        die 'neither minisign nor openssl 3 is here to check the signature; install one, or give --checksum-only'
    fi
    for key in $KEYS; do
        case $tool in
            minisign) minisign -V -q -P "$key" -x "$work/SHA256SUMS.minisig" -m "$work/SHA256SUMS" ;;
            *) openssl_verifies "$key" ;;
        esac > /dev/null 2>&1 || continue
        echo "SHA256SUMS is signed by $key (checked by $tool)"
        return
    done
    die "SHA256SUMS is not signed by $KEYS; nothing was installed"
}

# Downloads, checks and unpacks the archive into $tree.
get_tree() {
    case $(uname -sm) in
        'Linux x86_64') architecture=amd64 loader=/lib64/ld-linux-x86-64.so.2 ;;
        'Linux aarch64') architecture=arm64 loader=/lib/ld-linux-aarch64.so.1 ;;
        *) die "there is no archive for $(uname -sm); build from source" ;;
    esac
    for musl in /lib/ld-musl-*; do
        [ -e "$loader" ] || [ ! -e "$musl" ] ||
            die "this system has musl and no glibc (as Alpine), and the program needs glibc $GLIBC or newer; use the image"
    done
    fetch SHA256SUMS
    if [ -z "$checksum_only" ]; then verify; fi
    line=$(grep -E "^[0-9a-f]{64}  plimsoll-[0-9A-Za-z.+-]+-linux-$architecture\.tar\.gz\$" "$work/SHA256SUMS") ||
        die "SHA256SUMS names no archive for $architecture"
    archive=${line#*  }
    case $archive in *' '*) die "SHA256SUMS names several archives for $architecture" ;; esac
    fetch "$archive"
    sum=$(sha256sum < "$work/$archive")
    [ "${sum%% *}" = "${line%% *}" ] || die "$archive is not the file that SHA256SUMS names; nothing was installed"
    mkdir "$work/tree"
    tar -xzf "$work/$archive" -C "$work/tree" --no-same-owner || die "cannot unpack $archive"
    set -- "$work"/tree/*
    tree=$1
    version=$("$tree/bin/plimsoll" --version 2>&1) ||
        die "the program does not run here: it needs glibc $GLIBC or newer, and does not run with musl ($version)"
}

# Makes a folder below the prefix, and records those that were missing.
make_folder() {
    if [ ! -d "$prefix/$1" ]; then
        case $1 in */*) make_folder "${1%/*}" ;; esac
        mkdir "$prefix/$1"
        echo "$1/" >> "$work/record"
    fi
}

install() {
    get_tree
    (cd "$tree" && find bin lib/plimsoll share -type f) > "$work/files"
    while read -r file; do
        if [ -e "$prefix/$file" ] && ! { [ -f "$record" ] && grep -qxF "$file" "$record"; }; then
            die "$prefix/$file is there, and not from install.sh; remove it, or give --prefix"
        fi
    done < "$work/files"
    mkdir -p "$prefix"
    touch "$work/record" "$work/old"
    if [ -f "$record" ]; then cp "$record" "$work/old"; fi
    while read -r file; do make_folder "${file%/*}"; done < "$work/files"
    # Recorded before it is there, so that an installation that is cut short can be repeated or undone.
    sort -u "$work/old" "$work/record" "$work/files" > "$record"
    while read -r file; do
        # By a new name, because a running program cannot be written over.
        cp "$tree/$file" "$prefix/$file.new"
        mv -f "$prefix/$file.new" "$prefix/$file"
    done < "$work/files"
    grep -v '/$' "$work/old" | grep -vxF -f "$work/files" | while read -r file; do
        rm -f "$prefix/$file"
        grep -vxF "$file" "$record" > "$work/record" && cp "$work/record" "$record"
    done
    echo "$version is $prefix/bin/plimsoll"
    case :$PATH: in *":$prefix/bin:"*) ;; *) echo "add $prefix/bin to PATH" ;; esac
}

uninstall() {
    [ -f "$record" ] || die "$record is not there: install.sh has installed nothing below $prefix"
    if grep -qE '(^|/)\.\.(/|$)|^/' "$record"; then die "$record names a file outside of $prefix"; fi
    unit=${XDG_CONFIG_HOME:-$HOME/.config}/systemd/user/plimsoll.service
    if [ -f "$unit" ] && grep -qF "$prefix/bin/plimsoll" "$unit"; then
        systemctl --user disable --now plimsoll 2> /dev/null || true
        rm -f "$unit"
    fi
    "$prefix/bin/plimsoll" engine remove || die 'nothing was removed'
    cp "$record" "$work/record"
    rm -f "$record"
    grep -v '/$' "$work/record" | while read -r file; do rm -f "$prefix/$file"; done
    for folder in "${XDG_CACHE_HOME:-$HOME/.cache}" "${XDG_STATE_HOME:-$HOME/.local/state}"; do
        rm -rf "$folder/plimsoll"
        rmdir "$folder" 2> /dev/null || true
    done
    # The deepest first; a folder with files of others stays.
    grep '/$' "$work/record" | sort -r | while read -r folder; do rmdir "$prefix/$folder" 2> /dev/null || true; done
    rmdir "$prefix" 2> /dev/null || true
    echo "removed from $prefix; ${XDG_CONFIG_HOME:-$HOME/.config}/plimsoll stays"
}

main() {
    prefix=${HOME:?}/.local act=install checksum_only=
    case $FROM in @*) FROM='' ;; esac
    case $KEYS in @*) KEYS='' ;; esac
    while [ $# -gt 0 ]; do
        case $1 in
            --uninstall) act=uninstall ;;
            --checksum-only) checksum_only=yes ;;
            --help | -h) usage && exit ;;
            --from | --prefix | --key)
                if [ $# -lt 2 ] || [ -z "$2" ]; then die "$1 needs a value"; fi
                case $1 in --from) FROM=${2%/} ;; --prefix) prefix=$2 ;; *) KEYS=$2 ;; esac
                shift ;;
            *) die "$1 is not an option; --help lists them" ;;
        esac
        shift
    done
    [ $act = uninstall ] || [ -n "$FROM" ] || die 'give --from URL or --from FOLDER'
    case $prefix in /*) ;; *) prefix=$PWD/$prefix ;; esac
    record=$prefix/lib/plimsoll/installed
    umask 022
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    trap 'exit 1' HUP INT TERM
    $act
}

main "$@"
