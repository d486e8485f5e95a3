# What happened on each day of a log, and which pages were wanted most.
{
    day = substr($4, 2, 11)
    if (!(day in requests)) days[++known] = day
    requests[day]++
    errors[day] += $9 >= 400
    bytes[day] += $10
    page = $7
    sub(/\?.*/, "", page)
    wanted[day, page]++
}
END {
    for (k = 1; k <= known; k++) {
        day = days[k]
        printf "%s  %d requests, %d errors, %d kB\n",
            day, requests[day], errors[day], bytes[day] / 1000
        for (rank = 1; rank <= 5; rank++) {
            best = ""
            for (key in wanted) {
                split(key, of, SUBSEP)
                if (of[1] != day) continue
                # Of equals the first in the alphabet, so that each run says the same.
                if (best == "" || wanted[key] > wanted[best] \
                        || (wanted[key] == wanted[best] && key < best)) best = key
            }
            if (best == "") break
            split(best, of, SUBSEP)
            printf "%6d  %s\n", wanted[best], of[2]
            delete wanted[best]
        }
    }
}
