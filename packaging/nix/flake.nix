# Nix flake of the sources: nix build 'REPOSITORY?dir=packaging/nix'
{
  description = "Runs several local models on GPUs that cannot hold all of them";
  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs = { self, nixpkgs }:
    let
      sources = ../..;
      workspace = (builtins.fromTOML (builtins.readFile (sources + "/Cargo.toml"))).workspace;
      forSystem = system: {
        name = system;
        value.default = package nixpkgs.legacyPackages.${system};
      };
      package = pkgs: pkgs.rustPlatform.buildRustPackage {
        pname = "plimsoll";
        version = workspace.package.version;
        src = sources;
        cargoLock.lockFile = sources + "/Cargo.lock";
        cargoBuildFlags = [ "--package" "plimsoll" ];
        # The tests need doubles, engines and Python's packages; `cargo xtask test` runs them.
        doCheck = false;
        nativeBuildInputs = [ pkgs.installShellFiles ];
        postBuild = "cargo build --profile guard --package plimsoll-guard --package plimsoll-phantom";
        postInstall = ''
          install -D -m 644 -t $out/lib/plimsoll target/guard/libplimsoll_*.so
          installManPage docs/reference/man/*.1
          installShellCompletion docs/reference/completions/plimsoll.{bash,fish}
          installShellCompletion --zsh docs/reference/completions/_plimsoll
        '';
        meta = {
          license = with pkgs.lib.licenses; [ mit asl20 ];
          platforms = [ "x86_64-linux" "aarch64-linux" ];
          mainProgram = "plimsoll";
        };
      };
    in
    {
      packages = builtins.listToAttrs (map forSystem [ "x86_64-linux" "aarch64-linux" ]);
    };
}
