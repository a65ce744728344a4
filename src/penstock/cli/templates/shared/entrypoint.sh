#!/bin/sh
# Runs penstock with the given arguments, and again after exit code 75 (try again later) only. 1, 2 and 3 want a person, and 4
# says that a newer run owns the pipeline: starting again would stop that one, in turn.
# SIGTERM lets penstock end after the current batch. Then the container ends with 75 instead of 0, since there is more to do.

for directory in {{inputs}}; do  # the pipeline reads what arrives there, and a new volume is empty
    mkdir -p "${DATA:-.}/$directory"
done

child=""
interrupted=""
signalled=""
stopped=""

stop() {
    interrupted=yes
    stopped=yes
    signalled=$child
    [ -n "$child" ] || return
    # A child that is forked and not yet penstock would lose a signal.
    { sleep 1; kill -TERM "$child"; } 2>/dev/null &
}

await_child() {
    wait "$child"
    code=$?
    while [ -n "$interrupted" ]; do  # by a signal, which may have ended `wait` before the child
        interrupted=""
        wait "$child"
        again=$?
        [ "$again" -eq 127 ] || code=$again
    done
}

trap stop TERM INT
while :; do
    penstock "$@" &
    child=$!
    # A stop that came before the child was known. A second signal would end penstock at once.
    [ -z "$stopped" ] || [ "$signalled" = "$child" ] || stop
    await_child
    child=""
    if [ -n "$stopped" ] && [ "$code" -eq 0 ]; then
        exit 75
    fi
    if [ -n "$stopped" ] || [ "$code" -ne 75 ]; then
        exit "$code"
    fi
    pause_s=${RETRY_AFTER_S:-30}
    while [ "$pause_s" -gt 0 ] && [ -z "$stopped" ]; do
        sleep 1
        pause_s=$((pause_s - 1))
    done
    [ -z "$stopped" ] || exit 75
done
