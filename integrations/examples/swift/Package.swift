// swift-tools-version:5.9
import PackageDescription

let package = Package(
    name: "server",
    products: [.plugin(name: "Allograft", targets: ["Allograft"])],
    targets: [
        .executableTarget(name: "server"),
        .plugin(
            name: "Allograft",
            capability: .command(
                intent: .custom(verb: "allograft", description: "Builds the package's programs with a donor"),
                permissions: []
            )
        ),
    ]
)
