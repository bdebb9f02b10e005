"""Several clients, here and at stock redis-server, command by command: all of them get the same bytes.

Blocking commands, transactions, subscriptions, keyspace notifications.
"""

from __future__ import annotations

from collections.abc import Callable

Play = Callable[..., None]


def lines(client: int, text: str) -> list[tuple[int, list[str]]]:
    """Commands of a client, one a line."""
    return [(client, line.split()) for line in text.strip().splitlines()]


def test_lists_that_are_waited_for(play: Play) -> None:
    play(
        [
            *lines(0, "BLPOP a b 0"),
            *lines(1, "BRPOP b 0"),
            *lines(2, "RPUSH b 1\nRPUSH b 2 3\nLRANGE b 0 -1"),
            *lines(0, "BLPOP b 0\nBLPOP b x\nBLPOP b -1\nBLPOP none 0"),
            *lines(2, "SADD none member\nDEL none\nLPUSH none x y"),
            *lines(0, "BLMOVE from to LEFT RIGHT 0"),
            *lines(1, "BLPOP to 0"),
            *lines(2, "RPUSH from moved\nLLEN to"),
            *lines(0, "BLMPOP 0 2 a b RIGHT COUNT 2"),
            *lines(2, "RPUSH b 1 2 3\nDEL b"),
            *lines(0, "BRPOPLPUSH from to 0"),
            *lines(2, "RPUSH other 1\nRENAME other from\nLRANGE to 0 -1"),
            *lines(0, "BLPOP renamed 0"),
            *lines(2, "MULTI\nRPUSH renamed 1\nDEL renamed\nEXEC\nRPUSH renamed 2"),
            *lines(0, "SET string x\nBLPOP string 0"),
        ]
    )


def test_sorted_sets_and_streams_that_are_waited_for(play: Play) -> None:
    play(
        [
            *lines(0, "BZPOPMIN a b 0"),
            *lines(1, "BZPOPMAX a 0"),
            *lines(2, "ZADD a 1 x 2 y\nZADD b 1 z\nZRANGE b 0 -1"),
            *lines(0, "BZPOPMAX b 0\nBZMPOP 0 1 c MIN COUNT 5"),
            *lines(2, "ZADD c 3 three 1 one 2 two"),
            *lines(0, "XREAD BLOCK 0 STREAMS s t $ 5-0"),
            *lines(1, "XREAD BLOCK 0 COUNT 1 STREAMS s 0"),
            *lines(2, "XADD t 4-0 f v\nXADD t 6-0 f v\nXADD s 1-1 f v"),
            *lines(0, "XREAD BLOCK x STREAMS s $\nXREAD BLOCK -1 STREAMS s $"),
        ]
    )


def test_a_wait_is_ended_by_another_client(play: Play) -> None:
    play(
        [
            *lines(0, "CLIENT UNBLOCK 999999\nCLIENT UNBLOCK x\nCLIENT UNBLOCK 1 NO"),
            *lines(
                1,
                "MULTI\nBLPOP none 0\nBLMOVE none to LEFT LEFT 0\nBZPOPMIN none 0\nXREAD BLOCK 0 STREAMS none $\nEXEC",
            ),
        ]
    )


def test_transactions(play: Play) -> None:
    play(
        [
            *lines(0, "MULTI\nSET a 1\nINCR a\nGET a\nEXEC\nEXEC\nDISCARD\nMULTI\nMULTI\nWATCH a\nDISCARD"),
            *lines(0, "MULTI\nSET a\nEXEC\nMULTI\nNOPE\nSET a 1\nEXEC\nMULTI\nLPUSH a x\nGET a\nEXEC"),
            *lines(0, "WATCH a b\nGET a"),
            *lines(1, "SET b changed"),
            *lines(0, "MULTI\nSET a 2\nEXEC\nGET a\nWATCH a\nUNWATCH"),
            *lines(1, "SET a 3"),
            *lines(0, "MULTI\nGET a\nEXEC\nWATCH c"),
            *lines(1, "FLUSHALL"),
            *lines(0, "MULTI\nPING\nEXEC\nSET c 1\nWATCH c"),
            *lines(1, "FLUSHALL"),
            *lines(0, "MULTI\nPING\nEXEC\nWATCH d"),
            *lines(1, "SELECT 1\nSET d 1\nSWAPDB 0 1"),
            *lines(0, "MULTI\nPING\nEXEC\nMULTI\nSELECT 2\nSET x 1\nEXEC\nGET x\nRESET\nGET x"),
            *lines(0, "MULTI\nPING x y\nDISCARD x\nEXEC"),
        ]
    )


def test_subscriptions(play: Play) -> None:
    play(
        [
            *lines(0, "SUBSCRIBE a b a\nPSUBSCRIBE a* ?z\nPING\nPING text\nGET x\nSET x 1"),
            *lines(1, "PUBLISH a message\nPUBLISH none message\nPUBLISH abc message"),
            *lines(1, "PUBSUB CHANNELS a*\nPUBSUB NUMSUB a b c\nPUBSUB NUMPAT\nPUBSUB NUMSUB\nPUBSUB NOPE"),
            *lines(0, "UNSUBSCRIBE a c\nPUNSUBSCRIBE a*\nUNSUBSCRIBE"),
            *lines(0, "PUNSUBSCRIBE\nUNSUBSCRIBE\nGET x\nPUNSUBSCRIBE"),
            *lines(0, "MULTI\nSUBSCRIBE c\nPING\nEXEC\nPUBLISH c me\nRESET\nGET x"),
            *lines(1, "CLIENT REPLY SKIP\nPING\nPING\nCLIENT REPLY OFF\nPING\nCLIENT REPLY ON"),
            *lines(1, "CLIENT REPLY OFF\nSUBSCRIBE d"),
            *lines(0, "PUBLISH d pushed"),
        ]
    )


def test_keyspace_notifications(play: Play) -> None:
    play(
        [
            *lines(1, "CONFIG SET notify-keyspace-events KEA\nCONFIG GET notify-keyspace-events"),
            *lines(0, "PSUBSCRIBE __key*__:*"),
            *lines(
                1, "SET a 1\nINCR a\nAPPEND a x\nSETRANGE a 1 y\nEXPIRE a 1000\nPERSIST a\nRENAME a b\nCOPY b a\nDEL b"
            ),
            *lines(
                1,
                "SET a 1 EX 1000\nGETEX a PERSIST\nGETDEL a\nMSET x 1 y 2\nGETSET x 3\nSETBIT bits 1 1",
            ),
            *lines(
                1, "BITOP OR bits2 bits\nBITOP OR bits2 none\nMOVE x 1\nEXPIRE y -1\nSETEX y 100 1\nSET y 1 KEEPTTL"
            ),
            *lines(
                1, "LPUSH l 1 2\nRPUSH l 3\nLPOP l\nLSET l 0 x\nLTRIM l 0 0\nLINSERT l BEFORE x y\nLREM l 0 y\nRPOP l"
            ),
            *lines(1, "RPUSH l 1 2\nLMOVE l m LEFT RIGHT\nRPOPLPUSH l m\nLMPOP 1 m LEFT COUNT 5"),
            *lines(1, "HSET h f 1\nHINCRBY h f 1\nHINCRBYFLOAT h f 1\nHSETNX h g 1\nHDEL h f g"),
            *lines(1, "SADD s 1\nSMOVE s t 1\nSUNIONSTORE u t\nSDIFFSTORE u t t\nSPOP t\nSADD s 1\nSREM s 1"),
            *lines(1, "ZADD z 1 a 2 b 3 c\nZINCRBY z 1 a\nZREM z a\nZPOPMIN z\nZREMRANGEBYSCORE z 0 10\nZADD z 1 a"),
            *lines(1, "ZUNIONSTORE y 1 z\nZRANGESTORE w z 0 -1\nZDIFFSTORE y 2 z z\nZPOPMAX z\nZADD w XX INCR 1 a"),
            *lines(
                1,
                "XADD q 1-1 f v\nXADD q MAXLEN 1 2-1 f v\nXTRIM q MAXLEN 0\nXSETID q 5-0\nXADD q 6-1 f v\nXDEL q 6-1",
            ),
            *lines(
                1, "CONFIG SET notify-keyspace-events Kmn\nGET none\nSET fresh 1\nCONFIG SET notify-keyspace-events ZZ"
            ),
            *lines(1, "CONFIG GET notify-keyspace-events"),
        ]
    )


def test_what_had_expired_when_it_was_watched(play: Play) -> None:
    """Its removal is no change; that something is there in its place is one. DEBUG SLEEP has it expire."""
    stale = "UNWATCH\nDEL x\nSET x old PX 1\nDEBUG SLEEP 0.003\nWATCH x"
    runs = "MULTI\nPING\nEXEC"
    play(
        [
            *lines(0, f"DEBUG SET-ACTIVE-EXPIRE 0\n{stale}\n{runs}"),
            *(
                step
                for done in [
                    "EXISTS x",
                    "DEL x",
                    "SET x new",
                    "INCR x",
                    "EXISTS x\nSET x new",
                    "FLUSHDB",
                    "FLUSHALL",
                    "FLUSHDB\nSET x new",
                    "RENAME y x",
                    "COPY y x",
                    "SWAPDB 0 1",
                    "SELECT 1\nSET x other\nSWAPDB 0 1\nDEL x\nSELECT 0",
                    "SELECT 1\nSET x other PX 1\nDEBUG SLEEP 0.003\nSWAPDB 0 1\nSELECT 0\nEXISTS x",
                    "SELECT 1\nSET x other PX 1\nDEBUG SLEEP 0.003\nSWAPDB 0 1\nSELECT 0\nSET x new",
                ]
                for step in [
                    *lines(1, "SET y 1"),
                    *lines(0, stale),
                    *lines(1, done),
                    *lines(0, runs),
                ]
            ),
            *lines(0, "FLUSHALL\nWATCH x"),
            *lines(1, "SELECT 1\nSET x other PX 1\nDEBUG SLEEP 0.003\nSWAPDB 0 1"),
            *lines(0, f"{runs}\nSET x 1\nWATCH x"),
            *lines(1, "SWAPDB 0 0\nSWAPDB 1 2"),
            *lines(0, f"{runs}\nWATCH x"),
            *lines(1, "SET x other PX 1\nDEBUG SLEEP 0.003\nSWAPDB 0 1"),
            *lines(0, f"{runs}\nDEBUG SET-ACTIVE-EXPIRE 1"),
        ]
    )


def test_a_pause_of_writes(play: Play) -> None:
    """Reads go on, writes wait, also those in a transaction, and what is wrong is refused at once."""
    play(
        [
            *lines(0, "SET a 1\nMULTI\nGET a\nSET a 2"),
            *lines(1, "MULTI\nGET a\nPING"),
            *lines(2, "CLIENT PAUSE 100000 WRITE\nGET a\nSET a\nNOPE\nSET a 1 NOPE x"),
            *lines(1, "EXEC"),
            *lines(3, "GET a\nSET a 3"),
            *lines(0, "EXEC"),
            *lines(4, "MULTI\nSET b 1"),
            *lines(5, "PUBLISH channel message"),
            *lines(2, "CLIENT PAUSE 1 WRITE\nCLIENT UNPAUSE\nGET a\nSET a 4"),
            *lines(4, "EXEC"),
            *lines(0, "GET a\nGET b"),
        ]
    )


def test_exec_that_is_refused_ends_the_transaction(play: Play) -> None:
    """For its form, or for want of memory: it says why, and nothing is queued any more."""
    play(
        [
            *lines(0, "MULTI\nSET a 1\nEXEC x\nEXEC\nMULTI\nNOPE\nEXEC\nEXEC"),
            *lines(0, "WATCH a\nMULTI\nSET a 1\nGET a"),
            *lines(1, "CONFIG SET maxmemory 1"),
            *lines(0, "EXEC\nEXEC\nGET a\nMULTI\nGET a\nEXEC"),
            *lines(1, "CONFIG SET maxmemory 0\nSET a 2"),
            *lines(0, "MULTI\nGET a\nEXEC"),
        ]
    )
