# Grafts every static program of musl's malloc under $out. Takes the variable donor and the array options; runs in bash
# with the options of nixpkgs' phases (errexit, nounset, pipefail).
grafted=0
while IFS= read -r -d '' program; do
	# Scripts, libraries, dynamic programs and those with another malloc stay as they are.
	about=$(allograft --quiet inspect --json "$program" 2>/dev/null) || continue
	grep -q '"link": "static' <<<"$about" && grep -q '"name": "mallocng"' <<<"$about" || continue
	allograft graft --donor "$donor" "${options[@]}" --out "$program.grafted" "$program"
	allograft inspect --expect "$donor" "$program.grafted"
	mv "$program.grafted" "$program"
	grafted=$((grafted + 1))
done < <(find "$out" -type f -perm -0100 -print0)
if [ "$grafted" = 0 ]; then
	echo "error: no program under $out is static and has musl's malloc" >&2
	echo "help: take the package from pkgsStatic; 'allograft inspect' says what a program has" >&2
	exit 1
fi
