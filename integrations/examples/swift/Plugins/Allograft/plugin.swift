import Foundation
import PackagePlugin

/// `swift package --swift-sdk ID allograft [OPTION...]`: builds the package for release with a donor, and has
/// `allograft inspect` look at each program. The options are those of `allograft emit`: `--donor`, `--set` and others.
/// `--target` is `x86_64-linux-musl` unless it is given.
@main
struct Allograft: CommandPlugin {
    func performCommand(context: PluginContext, arguments: [String]) throws {
        let new = context.pluginWorkDirectory.appending("allograft.o").string
        var emit = ["emit", "--json", "-o", new] + arguments
        if !arguments.contains("--target") {
            emit += ["--target", "x86_64-linux-musl"]
        }
        let emitted = try JSONDecoder().decode(Emitted.self, from: Data(try run(emit).utf8))
        // SwiftPM links again when the flags change, not when a file does that they name.
        let object = context.pluginWorkDirectory.appending("allograft-\(try fingerprint(of: new)).o").string
        try? FileManager.default.removeItem(atPath: object)
        try FileManager.default.moveItem(atPath: new, toPath: object)

        var parameters = PackageManager.BuildParameters(configuration: .release, logging: .concise)
        // Objects are linked before every library.
        parameters.otherLinkerFlags = [object]
        let built = try packageManager.build(.all(includingTests: false), parameters: parameters)
        guard built.succeeded else {
            throw Failure(description: "the package does not build:\n\(built.logText)")
        }
        for artifact in built.builtArtifacts where artifact.kind == .executable {
            print(try run(["inspect", "--expect", emitted.donor.donor, artifact.path.string]))
        }
    }

    /// Returns a number made from a file's bytes (FNV-1a, 64 bits).
    private func fingerprint(of file: String) throws -> String {
        let bytes = try Data(contentsOf: URL(fileURLWithPath: file))
        let hash = bytes.reduce(0xcbf2_9ce4_8422_2325 as UInt64) { ($0 ^ UInt64($1)) &* 0x100_0000_01b3 }
        return String(hash, radix: 16)
    }

    /// Runs allograft, and returns what it prints.
    private func run(_ arguments: [String]) throws -> String {
        let process = Process()
        let (out, err) = (Pipe(), Pipe())
        process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        process.arguments = ["allograft"] + arguments
        process.standardOutput = out
        process.standardError = err
        try process.run()
        let said = out.fileHandleForReading.readDataToEndOfFile()
        let complaint = err.fileHandleForReading.readDataToEndOfFile()
        process.waitUntilExit()
        guard process.terminationStatus == 0 else {
            throw Failure(description: String(decoding: said + complaint, as: UTF8.self))
        }
        return String(decoding: said, as: UTF8.self)
    }
}

/// What `allograft emit --json` says of the donor.
struct Emitted: Decodable {
    struct Choice: Decodable { let donor: String }
    let donor: Choice
}

struct Failure: Error, CustomStringConvertible {
    let description: String
}
