#!/bin/sh
# What a change of policies has to pass. Every check runs, and its report goes to a folder; the exit code is 1 if any failed.
#   PRIVTAB_POLICIES      paths of policies, with blanks between them; by default those that privtab.toml lists
#   PRIVTAB_BASE          the revision to compare with, such as origin/main; without one, nothing is compared
#   PRIVTAB_FAIL_ON       the verdicts of a comparison that fail; by default wider,incomparable
#   PRIVTAB_MIN_COVERAGE  the least percentage of cells that scenarios prove; by default 0
#   PRIVTAB_PAGES         pages to compare with their policies: POLICY=FILE, with blanks between them
#   PRIVTAB_REPLAY        a policy by which logged decisions are decided again, and
#   PRIVTAB_LOGS          where these are: files and folders, with blanks between them
#   PRIVTAB_REPORTS       the folder of reports; by default privtab-reports
set -uf
reports=${PRIVTAB_REPORTS:-privtab-reports}
mkdir -p "$reports" || exit 3
failed=0
check() {
  echo "+ $*" >&2
  "$@" || { echo "privtab: this check failed: $*" >&2; failed=1; }
}
# Paths are words here.
# shellcheck disable=SC2086
{
  check privtab fmt --check ${PRIVTAB_POLICIES:-}
  check privtab lint ${PRIVTAB_POLICIES:-}
  privtab lint --fail-on never --format sarif --output "$reports/lint.sarif" ${PRIVTAB_POLICIES:-} 2>/dev/null || true
  check privtab test --min "coverage=${PRIVTAB_MIN_COVERAGE:-0}" ${PRIVTAB_POLICIES:-}
  if [ -n "${PRIVTAB_BASE:-}" ]; then
    check privtab diff "$PRIVTAB_BASE" --fail-on "${PRIVTAB_FAIL_ON:-wider,incomparable}" --format markdown >"$reports/diff.md"
    privtab diff "$PRIVTAB_BASE" --format sarif >"$reports/diff.sarif" || failed=1
    cat "$reports/diff.md"
  fi
  for page in ${PRIVTAB_PAGES:-}; do
    check privtab docs "${page%%=*}" --output "${page#*=}" --check
  done
  if [ -n "${PRIVTAB_REPLAY:-}" ]; then
    check privtab replay ${PRIVTAB_LOGS:?name the logs to decide again} --policy "$PRIVTAB_REPLAY" --fail-on any
  fi
}
exit "$failed"
