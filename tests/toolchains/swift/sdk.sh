# Makes a Swift SDK bundle of the true layout, in the current folder, from Debian's Swift and musl: `sdk.sh NAME`.
# names.o lies in the current folder.
set -e
name=$1
root=musl-1.2.5.sdk/x86_64
bundle=$name.artifactbundle
folder=$bundle/$name/swift-linux-musl
sdk=$folder/$root
gcc=usr/lib/gcc/x86_64-linux-gnu/14
mkdir -p $sdk/usr/lib/swift $sdk/$gcc $folder/swift.xctoolchain/usr/bin
cp /usr/lib/x86_64-linux-musl/*.[ao] $sdk/usr/lib/
ar r $sdk/usr/lib/libc.a names.o 2>/dev/null
cp /$gcc/crt*.o /$gcc/libgcc.a /$gcc/libgcc_eh.a /$gcc/libstdc++.a $sdk/$gcc/
cp -a /usr/libexec/swift/lib/swift_static $sdk/usr/lib/swift_static
rm $sdk/usr/lib/swift_static/clang
cp -aL /usr/libexec/swift/lib/clang/17 $sdk/usr/lib/swift_static/clang
cp -aL /usr/include $sdk/usr/
rm -rf $sdk/usr/include/x86_64-linux-musl
printf '%s\n' -static -lswiftCore -ldispatch -lBlocksRuntime -lstdc++ -lm -lpthread -ldl \
	>$sdk/usr/lib/swift_static/linux/static-executable-args.lnk
cat >$bundle/info.json <<END
{
  "schemaVersion": "1.0",
  "artifacts": {
    "$name": {
      "variants": [ { "path": "$name/swift-linux-musl" } ],
      "version": "0.0.1",
      "type": "swiftSDK"
    }
  }
}
END
cat >$folder/swift-sdk.json <<END
{
  "schemaVersion": "4.0",
  "targetTriples": {
    "x86_64-pc-linux-gnu": {
      "toolsetPaths": [ "toolset.json" ],
      "sdkRootPath": "$root",
      "swiftResourcesPath": "$root/usr/lib/swift_static",
      "swiftStaticResourcesPath": "$root/usr/lib/swift_static"
    }
  }
}
END
cat >$folder/toolset.json <<END
{
  "rootPath": "swift.xctoolchain/usr/bin",
  "swiftCompiler": { "extraCLIOptions": [ "-static-executable", "-static-stdlib", "-Xclang-linker", "-no-pie" ] },
  "schemaVersion": "1.0"
}
END
tar czf $bundle.tar.gz $bundle
rm -rf $bundle
