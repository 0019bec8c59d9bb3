# Succeeds when the greeting lies beside this script and is not empty.
cd "$(dirname "$0")" || exit 1
read -r line < hello.txt || exit 1
[ -n "$line" ]
