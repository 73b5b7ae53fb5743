// swift-tools-version:5.9
import PackageDescription

let package = Package(name: "map", targets: [.executableTarget(name: "map")])
