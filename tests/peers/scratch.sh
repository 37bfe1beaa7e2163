# For scripts to include: what they leave behind is nothing, however they end.
#
# $work is a folder, and `run COMMAND...` runs a process. Both go with the script.
work=$(mktemp -d)
running=
finish() {
  [ -z "$running" ] || { kill "$running"; wait "$running" || true; }
  rm -rf "$work"
}
trap finish EXIT
run() {
  local status=0
  "$@" & # Not in the foreground, where bash would let it live on when it is told to end itself.
  running=$!
  wait "$running" || status=$?
  running=
  return $status
}
