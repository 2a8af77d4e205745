package script_test

import (
	"testing"

	"exnet/test/built"
	"exnet/test/ds"
	"exnet/test/ds/script"
)

// staticPlayer is a program without a dynamic linker, that libextds.a is linked to.
func staticPlayer(t *testing.T) string {
	return ds.Build(t, "player-static", []string{"-static", "-Wl,@" + built.Path(t, "libextds.wrap")},
		"player.c", "calls.c", "sockets.c", "bytes.c", "ready.c", "processes.c", "ring.c", built.Path(t, "libextds.a"))
}

// SWI-1: what static programs see is what TCP gives, too.
func TestStaticProgramIsLikeTCP(t *testing.T) {
	by := staticPlayer(t)
	script.ByHand(t, 0, func(t *testing.T, s script.Script) {
		likeTCPBy(t, by, s, "", both)
	})
}

// One end is static, the other has the library preloaded.
func TestStaticProgramUpgrades(t *testing.T) {
	scripts, err := script.Parse("script warm\nopen\nwarm\n", script.Variant{Family: "4"})
	if err != nil {
		t.Fatal(err)
	}
	for _, players := range [][2]string{{staticPlayer(t), staticPlayer(t)}, {staticPlayer(t), player(t)}} {
		fabric := ds.Fabric(t)
		stage := script.Stage{PlayerOf: map[script.End]string{script.A: players[0], script.B: players[1]}, EnvOf: map[script.End][]string{
			script.A: ds.Preload("", fabric), script.B: ds.Preload(ds.Library(t), fabric)}}
		if players[1] == players[0] {
			stage.EnvOf[script.B] = ds.Preload("", fabric)
		}
		stage.Before = func(pids map[script.End]int) {
			for _, end := range both {
				if most := busiest(t, pids[end]); most.VELO.Read+most.RMA.Read == 0 || most.VELO.Written+most.RMA.Written == 0 {
					t.Errorf("end %c: not upgraded both ways: %+v", end, most)
				}
			}
		}
		play(t, stage, scripts[0])
	}
}
