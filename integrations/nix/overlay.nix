# allograft for Nix: programs of pkgsStatic whose malloc is a donor's, grafted when they are linked already.
#
#   nixpkgs.overlays = [ (import ./overlay.nix { archive = ./allograft-VERSION-x86_64-unknown-linux-musl.tar.gz; }) ];
#   environment.systemPackages = [ (pkgs.withDonor { } pkgs.pkgsStatic.ripgrep) ];
#
# Written from the documentation of nixpkgs. This file was parsed, and never evaluated; graft.sh was run.
{ archive }:

final: prev: {
  allograft = prev.stdenvNoCC.mkDerivation {
    pname = "allograft";
    version = "0.1.0";
    src = archive;
    dontConfigure = true;
    dontBuild = true;
    installPhase = ''
      runHook preInstall
      install -D -m 755 -t "$out/bin" allograft cargo-allograft
      runHook postInstall
    '';
    # They are static, and stripped already.
    dontFixup = true;
    meta = {
      description = "Puts another allocator into static programs";
      mainProgram = "allograft";
      platforms = [ "x86_64-linux" "aarch64-linux" ];
    };
  };

  # A package whose static programs carry a donor: `withDonor { donor = "mimalloc"; } pkgsStatic.fd`.
  withDonor =
    {
      donor ? "snmalloc",
      options ? [ ],
    }:
    package:
    package.overrideAttrs (old: {
      nativeBuildInputs = (old.nativeBuildInputs or [ ]) ++ [ final.buildPackages.allograft ];
      # The last phase that changes files: what comes before strips, and edits paths.
      postFixup = ''
        ${old.postFixup or ""}
        donor=${prev.lib.escapeShellArg donor}
        options=(${prev.lib.escapeShellArgs options})
        ${builtins.readFile ./graft.sh}
      '';
    });
}
