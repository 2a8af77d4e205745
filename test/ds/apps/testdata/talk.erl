%% Two nodes that talk over sockets of each mode that Erlang has, and as nodes.
%%
%%	erl -name b@127.0.0.1 -run talk main serve PORT
%%	erl -name a@127.0.0.1 -run talk main talk PORT MEGABYTES b@127.0.0.1
%%
%% A server listens at PORT for each mode, at the ports behind it. A request is a letter and
%% a number in a line: E, so many bytes to be sent back; U, so many, whose digest is the
%% answer; D, so many are wanted.
-module(talk).
-export([main/1, echo/0, sum/1]).

modes() -> [passive, once, true, n].

main(["serve", Port]) ->
    [spawn_link(fun() -> listen(M, list_to_integer(Port) + I) end) || {I, M} <- numbered(modes())],
    receive forever -> ok end;
main(["talk", Port, Megabytes, Node]) ->
    Me = self(),
    Pairs = [{S, M, list_to_integer(Port) + I} || {I, S} <- numbered(modes()), M <- modes()],
    Size = list_to_integer(Megabytes) bsl 20,
    [spawn_link(fun() -> Me ! {N, talk(P, M, Size, N)} end) || {N, {_, M, P}} <- numbered(Pairs)],
    [receive {N, R} -> io:format("~p ~p: ~p~n", [S, M, R]) end || {N, {S, M, _}} <- numbered(Pairs)],
    io:format("nodes: ~p~n", [as_nodes(list_to_atom(Node))]),
    halt(0).

numbered(L) -> lists:zip(lists:seq(0, length(L) - 1), L).

block() -> << <<((I * 7 + I div 251) rem 256)>> || I <- lists:seq(0, 99990) >>.

listen(Mode, Port) ->
    {ok, L} = gen_tcp:listen(Port, [binary, {active, false}, {reuseaddr, true}, {backlog, 128}, {nodelay, true}, {ip, {127, 0, 0, 1}}]),
    accept(L, Mode).

accept(L, Mode) ->
    {ok, S} = gen_tcp:accept(L),
    Pid = spawn(fun() -> receive go -> ok end, begin_as(Mode, S), serve(S, Mode, <<>>, block()) end),
    ok = gen_tcp:controlling_process(S, Pid),
    Pid ! go,
    accept(L, Mode).

begin_as(true, S) -> ok = inet:setopts(S, [{active, true}]);
begin_as(n, S) -> ok = inet:setopts(S, [{active, 20}]);
begin_as(_, _) -> ok.

more(S, passive) -> gen_tcp:recv(S, 0);
more(S, Mode) ->
    if Mode =:= once -> inet:setopts(S, [{active, once}]); true -> ok end,
    receive
        {tcp, S, Data} -> {ok, Data};
        {tcp_closed, S} -> {error, closed};
        {tcp_passive, S} -> inet:setopts(S, [{active, 20}]), more(S, Mode)
    end.

line(S, Mode, Have) ->
    case binary:split(Have, <<"\n">>) of
        [Line, Rest] -> {Line, Rest};
        _ -> case more(S, Mode) of {ok, Data} -> line(S, Mode, <<Have/binary, Data/binary>>); {error, closed} -> closed end
    end.

exactly(_, _, Have, N) when byte_size(Have) >= N -> split_binary(Have, N);
exactly(S, Mode, Have, N) -> {ok, Data} = more(S, Mode), exactly(S, Mode, <<Have/binary, Data/binary>>, N).

digest(_, _, Have, N, C) when byte_size(Have) >= N -> {A, Rest} = split_binary(Have, N), {erlang:crc32(C, A), Rest};
digest(S, Mode, Have, N, C) -> {ok, Data} = more(S, Mode), digest(S, Mode, Data, N - byte_size(Have), erlang:crc32(C, Have)).

send(_, _, 0) -> ok;
send(S, B, N) -> K = min(N, byte_size(B)), ok = gen_tcp:send(S, binary:part(B, 0, K)), send(S, B, N - K).

serve(S, Mode, Have, B) ->
    case line(S, Mode, Have) of
        closed -> gen_tcp:close(S);
        {<<"E ", N/binary>>, R} -> {Data, Rest} = exactly(S, Mode, R, binary_to_integer(N)), ok = gen_tcp:send(S, Data), serve(S, Mode, Rest, B);
        {<<"U ", N/binary>>, R} -> {C, Rest} = digest(S, Mode, R, binary_to_integer(N), 0), ok = gen_tcp:send(S, io_lib:format("~b\n", [C])), serve(S, Mode, Rest, B);
        {<<"D ", N/binary>>, R} -> ok = send(S, B, binary_to_integer(N)), serve(S, Mode, R, B)
    end.

talk(Port, Mode, Size, Seed) ->
    {ok, S} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}, {nodelay, true}]),
    begin_as(Mode, S),
    B = block(),
    Echo = fun(I, {C, Have}) ->
        Data = binary:part(B, 0, 1 + (I * 7919 + Seed * 31) rem 30000),
        ok = gen_tcp:send(S, [io_lib:format("E ~b\n", [byte_size(Data)]), Data]),
        {Data, Rest} = exactly(S, Mode, Have, byte_size(Data)),
        {erlang:crc32(C, Data), Rest}
    end,
    {C, <<>>} = lists:foldl(Echo, {0, <<>>}, lists:seq(1, 100)),
    ok = gen_tcp:send(S, io_lib:format("U ~b\n", [Size])),
    ok = send(S, B, Size),
    {U, <<>>} = line(S, Mode, <<>>),
    ok = gen_tcp:send(S, io_lib:format("D ~b\n", [Size])),
    {D, <<>>} = digest(S, Mode, <<>>, Size, 0),
    gen_tcp:close(S),
    {C, U, D}.

echo() -> receive {From, X} -> From ! {self(), X}, echo() end.

sum(B) -> erlang:crc32(B).

%% As nodes: messages one after the other, large ones, calls at once, and many that only come.
as_nodes(Other) ->
    pong = net_adm:ping(Other),
    P = spawn_link(Other, ?MODULE, echo, []),
    Ask = fun(X) -> P ! {self(), X}, receive {P, X} -> ok end end,
    [Ask({I, lists:seq(1, I rem 300)}) || I <- lists:seq(1, 1000)],
    B = binary:copy(block(), 40),
    [Ask({I, B}) || I <- lists:seq(1, 5)],
    Calls = [rpc:async_call(Other, ?MODULE, sum, [binary:part(B, 0, I * 1000)]) || I <- lists:seq(1, 100)],
    Sums = erlang:crc32(term_to_binary([rpc:yield(C) || C <- Calls])),
    Me = self(),
    [spawn_link(Other, fun() -> [Me ! {I, J, lists:duplicate(J rem 50, I)} || J <- lists:seq(1, 500)] end) || I <- lists:seq(1, 10)],
    {Sums, lists:sum([receive {I, J, L} when is_integer(I) -> I * J + length(L) end || _ <- lists:seq(1, 5000)])}.
