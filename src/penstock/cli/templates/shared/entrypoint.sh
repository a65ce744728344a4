#!/bin/sh
# Runs penstock with the given arguments, and again after exit code 75 (try again later) only. 1, 2 and 3 want a person, and 4
# says that a newer run owns the pipeline: starting again would stop that one, in turn.
# SIGTERM lets penstock end after the current batch. Then the container ends with 75 instead of 0, since there is more to do.

child=""
stopped=""

stop() {
    stopped=yes
    kill -TERM "$child" 2>/dev/null
}

await_child() {
    while :; do                      # a signal ends `wait` before the child has ended
        wait "$child"
        code=$?
        kill -0 "$child" 2>/dev/null || return
    done
}

trap stop TERM INT
while :; do
    penstock "$@" &
    child=$!
    [ -z "$stopped" ] || kill -TERM "$child" 2>/dev/null
    await_child
    if [ -n "$stopped" ] && [ "$code" -eq 0 ]; then
        exit 75
    fi
    if [ -n "$stopped" ] || [ "$code" -ne 75 ]; then
        exit "$code"
    fi
    sleep "${RETRY_AFTER_S:-30}" &
    child=$!
    [ -z "$stopped" ] || kill -TERM "$child" 2>/dev/null
    await_child
    [ -z "$stopped" ] || exit 75
done
